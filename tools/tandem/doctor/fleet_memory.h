// Whether the memory that a run will take, as predicted from the model's shape, is there on the
// hosts that its processes are on.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_MEMORY_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/plan/run_plan.h"
#include "tools/tandem/doctor/finding.h"
#include "tools/tandem/doctor/fleet.h"

namespace tandem::doctor {

// Bytes of host memory that a process will have taken at its fullest.
int64_t TrainerRankBytes(const plan::RunPlan& plan);
int64_t RolloutRankBytes(const plan::RunPlan& plan);

// One finding for each machine: what its processes will take beside what they hold already, against
// what is left there. Processes that compute on a GPU are left out: their tensors are not there.
void CheckFleetMemory(const plan::RunPlan& plan, const std::vector<FleetProcess>& processes,
                      Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_MEMORY_H_
