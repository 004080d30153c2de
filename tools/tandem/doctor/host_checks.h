// What this host must offer: processor, limits, shared memory, memory, disk, adapters.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_HOST_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_HOST_CHECKS_H_

#include <cstdint>

#include "common/plan/run_plan.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/doctor/finding.h"

namespace tandem::doctor {

void CheckProcessor(const config::v1::RunConfig& config, Findings& findings);
void CheckLimits(Findings& findings);
void CheckSharedMemory(const config::v1::RunConfig& config, Findings& findings);
void CheckAdapters(Findings& findings);

// Whether what the plan predicts of a run with --local fits into what is free now.
void CheckMemory(const plan::RunPlan& plan, Findings& findings);

// Whether run_dir can be written and has room for checkpoints and the trained model.
void CheckDisk(const config::v1::RunConfig& config, int64_t num_parameters, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_HOST_CHECKS_H_
