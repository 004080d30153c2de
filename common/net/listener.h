// TCP listening sockets: non-blocking and close-on-exec.
//
//   ASSIGN_OR_RETURN(std::vector<net::Listener> listeners,
//                    net::ListenAtAll({"trainer-0.tandem", 0}, /*backlog=*/512));
//   const int port = listeners.front().address.port();  // the real port, also when 0 was requested
#ifndef TANDEM_COMMON_NET_LISTENER_H_
#define TANDEM_COMMON_NET_LISTENER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/host/file_descriptor.h"
#include "common/net/socket_address.h"

namespace tandem::net {

struct Listener {
  host::FileDescriptor fd;
  SocketAddress address;
};

// Listens at one address, in its own family only. Errors carry the system's reason: NOT_FOUND if
// this host does not have the address or its family; otherwise UNAVAILABLE.
absl::StatusOr<Listener> Listen(const SocketAddress& address, int backlog);

// Listens on every interface of this host: one socket for IPv6 and IPv4, or IPv4 only if the host
// has no IPv6. UNAVAILABLE carries the system's reason.
absl::StatusOr<Listener> ListenEverywhere(int port, int backlog);

// Resolves `address` and listens, on one port, at each result that belongs to this host; a wildcard
// address listens on every interface. UNAVAILABLE carries the system's reason: no result is local,
// or one cannot be bound, for example because another process holds it.
absl::StatusOr<std::vector<Listener>> ListenAtAll(const HostPort& address, int backlog);

// True if accept() failed with `error` because the process or the system is out of descriptors or
// memory; any other error concerns that one connection.
bool IsOutOfDescriptors(int error);

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_LISTENER_H_
