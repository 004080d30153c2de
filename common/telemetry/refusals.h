// Connections that were refused for who made them, counted for the whole process: sockets that are
// not gRPC's have no metrics of their own.
#ifndef TANDEM_COMMON_TELEMETRY_REFUSALS_H_
#define TANDEM_COMMON_TELEMETRY_REFUSALS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::telemetry {

// Where a stranger was refused.
enum class RefusedAt { kRendezvous = 0, kLinks = 1 };

// Counts one, and logs it, one line a second at most: `peer` is its address, `why` what it lacked.
// Any thread.
void CountRefusal(RefusedAt place, absl::string_view peer, absl::string_view why);

// How many there were since the process began.
int64_t NumRefusals(RefusedAt place);

}  // namespace tandem::telemetry

#endif  // TANDEM_COMMON_TELEMETRY_REFUSALS_H_
