// Checks of this host: processor, limits, shared memory, memory, disk, network adapters.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_HOST_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_HOST_CHECKS_H_

#include <cstdint>

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/doctor/finding.h"
#include "tools/tandem/plan/run_plan.h"

namespace tandem::doctor {

void CheckProcessor(const config::v1::RunConfig& config, Findings& findings);
// Which device each service takes that --local starts on this host.
void CheckDevices(const config::v1::RunConfig& config, Findings& findings);
void CheckLimits(Findings& findings);
void CheckSharedMemory(const config::v1::RunConfig& config, Findings& findings);
void CheckAdapters(Findings& findings);

// Checks that the memory that the plan predicts for a run with --local is free now.
void CheckMemory(const plan::RunPlan& plan, Findings& findings);

// Checks that run_dir is writable and has room for checkpoints and the trained model.
void CheckDisk(const config::v1::RunConfig& config, int64_t num_parameters, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_HOST_CHECKS_H_
