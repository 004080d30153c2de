// Tells addresses of the public internet from those of this machine and its networks, for programs
// that connect where somebody else says.
//
//   ASSIGN_OR_RETURN(std::vector<net::SocketAddress> addresses, net::Resolve({"example.org", 443}));
//   RETURN_IF_ERROR(net::CheckGlobal(addresses[0]));
#ifndef TANDEM_COMMON_NET_GLOBAL_ADDRESS_H_
#define TANDEM_COMMON_NET_GLOBAL_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "common/net/socket_address.h"

namespace tandem::net {

// The address without its port: "10.0.0.1", "fe80::1".
std::string AddressText(const SocketAddress& address);

// PERMISSION_DENIED, with the address and what it is, unless it is an address that IANA's registries
// of special-purpose addresses call globally reachable: not one of this host (loopback, 0.0.0.0),
// private, shared (carrier-grade NAT), link-local, unique-local, multicast, reserved, for
// documentation or benchmarks, and none that has an IPv4 address within itself (mapped, NAT64, 6to4,
// Teredo), which may be any of these.
absl::Status CheckGlobal(const SocketAddress& address);

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_GLOBAL_ADDRESS_H_
