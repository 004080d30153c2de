// PhaseClock: measures a step's seconds by phase, with trace spans. One thread.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_PHASE_CLOCK_H_
#define TANDEM_SERVICES_TRAINER_FSDP_PHASE_CLOCK_H_

#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
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
  // Adds its lifetime to a phase; scopes must not nest. `unit` names the unit worked on.
  class Scope {
   public:
    Scope(PhaseClock& clock, Phase phase, absl::string_view unit = "")
        : seconds_(clock.seconds_[static_cast<size_t>(phase)]),
          span_(kNames[static_cast<size_t>(phase)], {{"unit", unit}}),
          begin_(std::chrono::steady_clock::now()) {}
    ~Scope() {
      seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    Scope(const Scope&) = delete;

   private:
    double& seconds_;
    const telemetry::ScopedSpan span_;
    std::chrono::steady_clock::time_point begin_;
  };

  // Returns the seconds since the last call.
  std::vector<std::pair<std::string, double>> Take() {
    std::vector<std::pair<std::string, double>> phases;
    for (size_t i = 0; i < kNumPhases; ++i) phases.emplace_back(kNames[i], seconds_[i]);
    seconds_.fill(0);
    return phases;
  }

 private:
  std::array<double, kNumPhases> seconds_{};
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_PHASE_CLOCK_H_
