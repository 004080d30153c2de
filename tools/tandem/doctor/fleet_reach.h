// Checks that the processes of a fleet reach each other's services.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_REACH_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_REACH_H_

#include <vector>

#include "absl/time/time.h"
#include "tools/tandem/doctor/finding.h"
#include "tools/tandem/doctor/fleet.h"

namespace tandem::doctor {

// Asks every process which of all addresses it reaches. Returns the processes that reported; a busy
// trainer reports only its leader.
std::vector<FleetProcess> CheckReach(const std::vector<FleetService>& services,
                                     absl::Duration timeout, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_REACH_H_
