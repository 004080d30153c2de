// Counts, for the whole process, connections refused because of who made them. Sockets other than
// gRPC's have no metrics of their own.
#ifndef TANDEM_COMMON_TELEMETRY_REFUSALS_H_
#define TANDEM_COMMON_TELEMETRY_REFUSALS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::telemetry {

// Where a connection was refused.
enum class RefusedAt { kRendezvous = 0, kLinks = 1 };

// Counts one refusal and logs it, at most one line per second: `peer` is its address, `why` what it
// lacked. Thread-safe.
void CountRefusal(RefusedAt place, absl::string_view peer, absl::string_view why);

// Number of refusals since the process started.
int64_t NumRefusals(RefusedAt place);

}  // namespace tandem::telemetry

#endif  // TANDEM_COMMON_TELEMETRY_REFUSALS_H_
