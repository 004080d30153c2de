// Measures where a step's time goes: named phases with the seconds spent in each, for timing_s/*.
//
//   telemetry::PhaseTimer timer;
//   {
//     auto phase = timer.Measure("generate");
//     ...
//   }
//   for (const auto& [name, seconds] : timer.TakeSeconds()) metrics["timing_s/" + name] = seconds;
#ifndef TANDEM_COMMON_TELEMETRY_PHASE_TIMER_H_
#define TANDEM_COMMON_TELEMETRY_PHASE_TIMER_H_

#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem::telemetry {

// Seconds since construction, on a monotonic clock.
class Stopwatch {
 public:
  Stopwatch() : start_(Clock::now()) {}
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  // Returns seconds() and restarts from zero.
  double Lap() {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
};

// Phases may nest and overlap: each counts for itself. Thread-safe.
class PhaseTimer {
 public:
  // Adds its lifetime to a phase. The timer outlives it.
  class Scope {
   public:
    Scope(PhaseTimer* timer, std::string name) : timer_(timer), name_(std::move(name)) {}
    ~Scope() { timer_->Add(name_, watch_.seconds()); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimer* const timer_;
    const std::string name_;
    const Stopwatch watch_;
  };

  [[nodiscard]] Scope Measure(std::string name) { return Scope(this, std::move(name)); }

  void Add(const std::string& name, double seconds) {
    absl::MutexLock lock(&mu_);
    seconds_[name] += seconds;
  }

  // Phase -> seconds so far.
  std::map<std::string, double> Seconds() const {
    absl::MutexLock lock(&mu_);
    return seconds_;
  }
  // Returns the same and resets all phases.
  std::map<std::string, double> TakeSeconds() {
    absl::MutexLock lock(&mu_);
    return std::exchange(seconds_, {});
  }

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, double> seconds_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::telemetry

#endif  // TANDEM_COMMON_TELEMETRY_PHASE_TIMER_H_
