// PhaseTimer: adds the seconds of its scope to a metric and records a trace span.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_PHASE_TIMER_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_PHASE_TIMER_H_

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "common/telemetry/trace.h"
#include "services/trainer/algorithm/update_statistics.h"

namespace tandem::trainer {

class PhaseTimer {
 public:
  // `metrics` outlives it.
  PhaseTimer(Metrics& metrics, std::string name)
      : metrics_(metrics),
        name_(std::move(name)),
        span_(absl::StripPrefix(name_, "timing_s/")),
        start_(Clock::now()) {}
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  ~PhaseTimer() { metrics_[name_] += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Metrics& metrics_;
  const std::string name_;
  const telemetry::ScopedSpan span_;
  const Clock::time_point start_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_PHASE_TIMER_H_
