// Whether the processes of a fleet reach each other's services.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_REACH_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_REACH_H_

#include <vector>

#include "absl/time/time.h"
#include "tools/tandem/doctor/finding.h"
#include "tools/tandem/doctor/fleet.h"

namespace tandem::doctor {

// Asks every process what it reaches of all the addresses. Answers those that told of themselves; a
// trainer that is at something tells of its leader alone.
std::vector<FleetProcess> CheckReach(const std::vector<FleetService>& services,
                                     absl::Duration timeout, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_REACH_H_
