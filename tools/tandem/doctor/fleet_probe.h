// Checks that the processes of a fleet can exchange data, and how fast, in one group of all of
// them, like that of a weight update.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_PROBE_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_PROBE_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "tools/tandem/doctor/finding.h"
#include "tools/tandem/doctor/fleet.h"

namespace tandem::doctor {

struct ProbeOptions {
  int64_t largest_bytes = int64_t{64} << 20;  // of the largest all-reduce; 0: no probe
  absl::Duration timeout = absl::Seconds(30);
};

// Probes Gloo over all processes, and NCCL over the trainer's ranks if each computes on a GPU. If a
// process is busy, probes nothing and adds a warning.
void CheckProbe(const std::vector<FleetService>& services,
                const std::vector<FleetProcess>& processes, const ProbeOptions& options,
                Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_PROBE_H_
