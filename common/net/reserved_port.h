// Reserves ports for programs that must know their port before they start.
#ifndef TANDEM_COMMON_NET_RESERVED_PORT_H_
#define TANDEM_COMMON_NET_RESERVED_PORT_H_

#include "absl/status/statusor.h"

namespace tandem::net {

// Returns a port of 127.0.0.1 that nobody listens on and nobody else gets until this process ends:
// it lies outside ip_local_port_range, from which the system picks (unless fewer than 1000 usable
// ports do), and no other call of this function in the network namespace returns it.
// RESOURCE_EXHAUSTED if all are taken.
absl::StatusOr<int> ReservePort();

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_RESERVED_PORT_H_
