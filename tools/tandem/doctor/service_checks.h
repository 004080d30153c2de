// Services that are said to be up: their names, ports, health, clocks, versions, and whether they
// are of one model.
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
  // Clocks further apart are found fault with: traces of several hosts no longer line up, and a
  // trainer that is started again may take itself for older than it was.
  absl::Duration max_clock_difference = absl::Seconds(1);
};

// trainer.endpoint, rollout.endpoints and rollout.endpoints_file; nothing where none is stated.
// Answers those that are up.
std::vector<FleetService> CheckServices(const config::v1::RunConfig& config,
                                        const std::optional<model::ModelSpec>& spec,
                                        const ServiceCheckOptions& options, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_SERVICE_CHECKS_H_
