// Whether an address is reached from this process, and if not, at what it ends: the name, the
// route, the port, the channel, or who answers.
//
//   const auto report = probe::Reach("10.0.0.2:5001", absl::Seconds(5));
//   if (report.outcome() != diagnostics::v1::REACH_OUTCOME_REACHED) ... report.error() ...
#ifndef TANDEM_COMMON_PROBE_REACH_H_
#define TANDEM_COMMON_PROBE_REACH_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tandem/diagnostics/v1/diagnostics_service.pb.h"

namespace tandem::probe {

// Connects to HOST:PORT, and then asks for the health of who answers as any channel of this process
// would. Blocks: `timeout` for each of the two, and what the resolver takes for a name. Any thread.
diagnostics::v1::ReachReport Reach(const std::string& address, absl::Duration timeout);

// The connection alone: REACHED says that somebody listens there.
diagnostics::v1::ReachReport Connect(const std::string& address, absl::Duration timeout);

// Each of them, several at a time; in the order of the addresses.
std::vector<diagnostics::v1::ReachReport> ReachAll(const std::vector<std::string>& addresses,
                                                   absl::Duration timeout);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_REACH_H_
