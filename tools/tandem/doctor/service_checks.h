// Checks the services that a configuration names: their names, ports, health, clocks, versions, and
// whether they have the same model.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_SERVICE_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_SERVICE_CHECKS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/doctor/finding.h"
#include "tools/tandem/doctor/fleet.h"

namespace tandem::doctor {

struct ServiceCheckOptions {
  std::string version;  // of this program
  absl::Duration timeout = absl::Seconds(5);
  // Warns of clocks further apart: traces of several hosts no longer line up, and a restarted
  // trainer may take itself for older than its predecessor.
  absl::Duration max_clock_difference = absl::Seconds(1);
};

// Checks trainer.endpoint, rollout.endpoints and rollout.endpoints_file; does nothing if none is
// set. Returns the running services.
std::vector<FleetService> CheckServices(const config::v1::RunConfig& config,
                                        const std::optional<model::ModelSpec>& spec,
                                        const ServiceCheckOptions& options, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_SERVICE_CHECKS_H_
