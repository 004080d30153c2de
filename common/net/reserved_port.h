// Ports for programs that are told where to listen before they are started.
#ifndef TANDEM_COMMON_NET_RESERVED_PORT_H_
#define TANDEM_COMMON_NET_RESERVED_PORT_H_

#include "absl/status/statusor.h"

namespace tandem::net {

// A port of 127.0.0.1 that nobody listens at and that nobody else gets: not of the system, which
// hands out those of ip_local_port_range and no others, and not of this function, in whatever
// process of the network namespace, until this process ends. RESOURCE_EXHAUSTED where all are
// taken.
absl::StatusOr<int> ReservePort();

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_RESERVED_PORT_H_
