// Finds this host's source address for packets to a peer.
#ifndef TANDEM_COMMON_COMM_LOCAL_ADDRESS_H_
#define TANDEM_COMMON_COMM_LOCAL_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem::comm {

// Returns the numeric local address of the route to `host` (a name or an address): 127.0.0.1 if
// that is this host's loopback. Sends nothing. UNAVAILABLE if the name does not resolve or there is
// no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

// True if `host` is an address of this host, so that traffic to it stays on the host.
bool IsThisHost(const std::string& host);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LOCAL_ADDRESS_H_
