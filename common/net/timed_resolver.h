// Resolves names with a deadline, which the system's resolver does not have.
//
//   ASSIGN_OR_RETURN(std::vector<net::SocketAddress> addresses,
//                    net::ResolveBefore({"example.org", 443}, absl::Now() + absl::Seconds(5)));
#ifndef TANDEM_COMMON_NET_TIMED_RESOLVER_H_
#define TANDEM_COMMON_NET_TIMED_RESOLVER_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/socket_address.h"

namespace tandem::net {

// Resolve(), but DEADLINE_EXCEEDED at the deadline, and CANCELLED soon after `cancelled`, which may be
// null, is true. A look-up that is given up ends in the background, in a thread of its own;
// RESOURCE_EXHAUSTED while as many as 32 of them are under way in the process.
absl::StatusOr<std::vector<SocketAddress>> ResolveBefore(
    const HostPort& address, absl::Time deadline, const std::function<bool()>& cancelled = nullptr);

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_TIMED_RESOLVER_H_
