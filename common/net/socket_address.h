// SocketAddress: an IPv4 or IPv6 socket address in the system's binary form.
//
//   ASSIGN_OR_RETURN(std::vector<net::SocketAddress> addresses, net::Resolve({"localhost", 5000}));
#ifndef TANDEM_COMMON_NET_SOCKET_ADDRESS_H_
#define TANDEM_COMMON_NET_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <vector>

#include "absl/status/statusor.h"
#include "common/net/host_port.h"

namespace tandem::net {

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  bool is_ipv6() const { return bytes.ss_family == AF_INET6; }
  bool is_loopback() const;
  int port() const;
  void set_port(int port);
};

// Resolves a host name or numeric address; each result has `address`'s port, and the system's
// preferred addresses come first. Blocks as long as the resolver does. UNAVAILABLE carries its
// reason.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& address);

// True if the host is a numeric address, which needs no resolver.
bool IsNumber(const HostPort& address);

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_SOCKET_ADDRESS_H_
