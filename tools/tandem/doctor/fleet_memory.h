// Checks that the hosts of a fleet have the memory that the plan predicts for a run.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_MEMORY_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_MEMORY_H_

#include <cstdint>
#include <vector>

#include "tools/tandem/doctor/finding.h"
#include "tools/tandem/doctor/fleet.h"
#include "tools/tandem/plan/run_plan.h"

namespace tandem::doctor {

// Peak bytes of host memory of one process.
int64_t TrainerRankBytes(const plan::RunPlan& plan);
int64_t RolloutRankBytes(const plan::RunPlan& plan);

// Adds one finding per machine: the memory that its processes will take beyond what they hold now,
// against what is available. Skips processes that compute on a GPU: their tensors are elsewhere.
void CheckFleetMemory(const plan::RunPlan& plan, const std::vector<FleetProcess>& processes,
                      Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_MEMORY_H_
