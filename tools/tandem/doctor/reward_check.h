// Checks whether the configured rewards are there: names, Python files, services.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_REWARD_CHECK_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_REWARD_CHECK_H_

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/doctor/finding.h"

namespace tandem::doctor {

// Loads Python files as a run does, and waits a few seconds for a service.
void CheckReward(const config::v1::RunConfig& config, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_REWARD_CHECK_H_
