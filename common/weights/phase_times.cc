#include "common/weights/phase_times.h"

namespace tandem::weights {
namespace {

double InSeconds(PhaseTimes::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

PhaseTimes::Clock::time_point PhaseTimes::Worked(absl::string_view phase, Clock::time_point start) {
  return Waited(phase, start, start);
}

PhaseTimes::Clock::time_point PhaseTimes::Waited(absl::string_view phase,
                                                 Clock::time_point phase_start,
                                                 Clock::time_point wait_start) {
  const Clock::time_point now = Clock::now();
  Add(phase, InSeconds(now - phase_start), InSeconds(now - wait_start));
  return now;
}

void PhaseTimes::Add(absl::string_view phase, double busy, double exposed) {
  for (auto& entry : phases_) {
    if (entry.phase() != phase) continue;
    entry.set_busy(entry.busy() + busy);
    entry.set_exposed(entry.exposed() + exposed);
    return;
  }
  auto& entry = phases_.emplace_back();
  entry.set_phase(std::string(phase));
  entry.set_busy(busy);
  entry.set_exposed(exposed);
}

double PhaseTimes::exposed_sum() const {
  double sum = 0;
  for (const auto& entry : phases_) sum += entry.exposed();
  return sum;
}

}  // namespace tandem::weights
