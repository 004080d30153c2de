// Which of this host's addresses a packet to a peer would leave from.
#ifndef TANDEM_COMMON_COMM_LOCAL_ADDRESS_H_
#define TANDEM_COMMON_COMM_LOCAL_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem::comm {

// The local address, as a number, of the route to `host` (a name or an address): 127.0.0.1 where it
// is this host's loopback. Sends nothing. UNAVAILABLE where the name does not resolve or nothing
// routes.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

// Whether `host` is an address of this host, so that nothing sent to it leaves it.
bool IsThisHost(const std::string& host);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LOCAL_ADDRESS_H_
