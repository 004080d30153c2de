// Tests whether this process can reach an address, and if not, what fails: the name, the route, the
// port, the channel, or the server behind it.
//
//   const auto report = probe::Reach("10.0.0.2:5001", absl::Seconds(5));
//   if (report.outcome() != diagnostics::v1::REACH_OUTCOME_REACHED) {
//     return absl::UnavailableError(report.error());
//   }
#ifndef TANDEM_COMMON_PROBE_REACH_H_
#define TANDEM_COMMON_PROBE_REACH_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tandem/diagnostics/v1/diagnostics_service.pb.h"

namespace tandem::probe {

// Connects to HOST:PORT, then checks the server over a channel like any other of this process.
// Blocks for up to `timeout` per resolved address, up to `timeout` plus about a second for the
// server, and the resolver's time for a name. Thread-safe.
diagnostics::v1::ReachReport Reach(const std::string& address, absl::Duration timeout);

// Tests the connection only: REACHED means that something listens there.
diagnostics::v1::ReachReport Connect(const std::string& address, absl::Duration timeout);

// Tests several addresses at a time; returns reports in the order of the addresses.
std::vector<diagnostics::v1::ReachReport> ReachAll(const std::vector<std::string>& addresses,
                                                   absl::Duration timeout);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_REACH_H_
