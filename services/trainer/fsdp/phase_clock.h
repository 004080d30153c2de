// PhaseClock: measures a step's seconds by phase, with trace spans. One thread.
//
// On a GPU the device measures: the host only issues work there, so its clock would charge a phase
// with the waits of an earlier one. A wait for a collective is then the time in which the compute
// stream stood still for it. Trace spans show the host's view on every device.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_PHASE_CLOCK_H_
#define TANDEM_SERVICES_TRAINER_FSDP_PHASE_CLOCK_H_

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/device/device.h"
#include "common/telemetry/trace.h"

namespace tandem::trainer {

// kNormWait: waiting for the slowest rank's gradient norm.
enum class Phase {
  kAllGatherWait,
  kReduceScatterWait,
  kForward,
  kBackward,
  kHead,
  kNormWait,
  kOptimizer
};

class PhaseClock {
  static constexpr size_t kNumPhases = 7;
  static constexpr std::array<const char*, kNumPhases> kNames = {
      "all_gather_wait", "reduce_scatter_wait", "forward", "backward", "head", "norm_wait",
      "optimizer"};

 public:
  // `device` computes and outlives the clock; null for a CPU.
  explicit PhaseClock(device::Device* device = nullptr) : device_(device) {}

  // Adds its lifetime to a phase; scopes must not nest. `unit` names the unit worked on.
  class Scope {
   public:
    Scope(PhaseClock& clock, Phase phase, absl::string_view unit = "")
        : clock_(clock),
          phase_(static_cast<size_t>(phase)),
          span_(kNames[phase_], {{"unit", unit}}),
          device_begin_(clock.RecordTime()),
          begin_(std::chrono::steady_clock::now()) {}
    ~Scope() {
      if (device_begin_ != nullptr) {
        clock_.AddStretch({phase_, std::move(device_begin_), clock_.RecordTime()});
      } else {
        clock_.seconds_[phase_] +=
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
      }
    }
    Scope(const Scope&) = delete;

   private:
    PhaseClock& clock_;
    const size_t phase_;
    const telemetry::ScopedSpan span_;
    std::unique_ptr<device::Event> device_begin_;
    std::chrono::steady_clock::time_point begin_;
  };

  // Returns the seconds since the last call. Waits for the device, if the scopes ran on one.
  std::vector<std::pair<std::string, double>> Take() {
    Measure(stretches_.size());
    std::vector<std::pair<std::string, double>> phases;
    for (size_t i = 0; i < kNumPhases; ++i) phases.emplace_back(kNames[i], seconds_[i]);
    seconds_.fill(0);
    return phases;
  }

 private:
  // Work of a phase on the device. It may not have run yet.
  struct Stretch {
    size_t phase;
    std::unique_ptr<device::Event> begin, end;
  };
  // Bounds the events of a step of many micro-batches. The oldest half is done long since, so
  // measuring it does not wait.
  static constexpr size_t kMostStretches = 4096;

  std::unique_ptr<device::Event> RecordTime() {
    return device_ == nullptr ? nullptr : device_->RecordTime();
  }

  void AddStretch(Stretch stretch) {
    if (stretches_.size() >= kMostStretches) Measure(kMostStretches / 2);
    stretches_.push_back(std::move(stretch));
  }

  void Measure(size_t count) {
    for (; count > 0; --count) {
      const Stretch& oldest = stretches_.front();
      seconds_[oldest.phase] += device_->SecondsBetween(*oldest.begin, *oldest.end);
      stretches_.pop_front();
    }
  }

  device::Device* const device_;
  std::array<double, kNumPhases> seconds_{};
  std::deque<Stretch> stretches_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_PHASE_CLOCK_H_
