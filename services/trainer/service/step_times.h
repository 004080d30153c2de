// Where the seconds of a training step went, on every rank.
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

// Up to this many ranks are told apart.
inline constexpr int kRanksWithTimes = 16;

// Adds timing_s/fsdp/PHASE of this rank and, of a world of at most kRanksWithTimes,
// timing_s/rank.K/PHASE of every rank: the phases of PhaseClock, `other`, which is what they leave
// of the step, and `step`, which they add up to. `phases` has the same names on every rank.
// Collective; `device` is where the world moves tensors. Errors are those of the collective.
absl::Status AddStepTimes(PhaseSeconds phases, double step_seconds, comm::ProcessGroup& world,
                          c10::Device device, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_STEP_TIMES_H_
