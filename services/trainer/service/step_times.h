// The seconds of a training step by phase, on every rank.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_STEP_TIMES_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_STEP_TIMES_H_

#include <c10/core/Device.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/comm/process_group.h"
#include "services/trainer/algorithm/update_statistics.h"

namespace tandem::trainer {

using PhaseSeconds = std::map<std::string, double>;

// Largest world whose ranks are reported one by one.
inline constexpr int kRanksWithTimes = 16;

// Adds timing_s/fsdp/PHASE of this rank and, in a world of at most kRanksWithTimes,
// timing_s/rank.K/PHASE of every rank. Phases are those of PhaseClock, `other` (the rest of the
// step) and `step` (their sum). `phases` has the same names on every rank. Collective; `device` is
// the one on which the world moves tensors. Errors are those of the collective.
absl::Status AddStepTimes(PhaseSeconds phases, double step_seconds, comm::ProcessGroup& world,
                          c10::Device device, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_STEP_TIMES_H_
