// The doctor's view of a fleet: the running services, and the report of each of their processes.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tandem/diagnostics/v1/diagnostics_service.pb.h"

namespace tandem::doctor {

// The trainer, or a rollout replica.
struct FleetService {
  bool is_trainer = false;
  std::string key;  // configuration key
  int num_ranks = 1;
  // HOST:PORT to call: for the trainer its leader's, for a rollout that of every rank.
  std::vector<std::string> addresses;
};

// One rank of a service.
struct FleetProcess {
  bool is_trainer = false;
  int rank = 0;         // within its service
  std::string address;  // for every trainer rank, the leader's
  diagnostics::v1::ProcessReport report;

  // "trainer rank 1 (10.0.0.2:5000)".
  std::string name() const {
    return absl::StrCat(is_trainer ? "trainer" : "rollout", rank == 0 ? "" : " rank ",
                        rank == 0 ? "" : absl::StrCat(rank), " ", address);
  }
};

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_FLEET_H_
