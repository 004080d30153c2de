// Whether the processes of a fleet can exchange data, and how fast: a group of all of them, as a
// weight update would make it.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_PROBE_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_PROBE_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "tools/tandem/doctor/finding.h"
#include "tools/tandem/doctor/fleet.h"

namespace tandem::doctor {

struct ProbeOptions {
  int64_t largest_bytes = int64_t{64} << 20;  // that are reduced; 0: nothing is probed
  absl::Duration timeout = absl::Seconds(30);
};

// Gloo over all processes, and NCCL over the trainer's ranks where each computes on a GPU. Where a
// process is at something nothing is probed, and a warning says so.
void CheckProbe(const std::vector<FleetService>& services,
                const std::vector<FleetProcess>& processes, const ProbeOptions& options,
                Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_PROBE_H_
