// Looks for what answers the policy's turns.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_ENVIRONMENT_CHECK_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_ENVIRONMENT_CHECK_H_

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/doctor/finding.h"

namespace tandem::doctor {

// The program of environment.command, or a service that answers. Finds nothing if the run needs none.
void CheckEnvironment(const config::v1::RunConfig& config, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_ENVIRONMENT_CHECK_H_
