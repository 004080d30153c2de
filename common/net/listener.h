// Listening sockets of TCP. None blocks, and child processes inherit none.
//
//   ASSIGN_OR_RETURN(std::vector<net::Listener> listeners,
//                    net::ListenAtAll({"trainer-0.tandem", 0}, /*backlog=*/512));
//   listeners.front().address.port()  // which was taken, where it was 0
#ifndef TANDEM_COMMON_NET_LISTENER_H_
#define TANDEM_COMMON_NET_LISTENER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/net/socket_address.h"
#include "common/status/file_descriptor.h"

namespace tandem::net {

struct Listener {
  FileDescriptor fd;
  SocketAddress address;
};

// At one address, and its family alone. Errors, with the system's reason: NOT_FOUND where the
// address, or its family, is none of this host's; UNAVAILABLE.
absl::StatusOr<Listener> Listen(const SocketAddress& address, int backlog);

// At every interface of this host: one socket for IPv6 and IPv4, or IPv4 alone where the host has
// no IPv6. UNAVAILABLE, with the system's reason.
absl::StatusOr<Listener> ListenEverywhere(int port, int backlog);

// At those addresses of a name or number that are this host's, by the same port; everywhere for one
// that stands for every interface. UNAVAILABLE, with the system's reason, where there is none, or
// one cannot be listened at: it may be another's.
absl::StatusOr<std::vector<Listener>> ListenAtAll(const HostPort& address, int backlog);

// Whether accept() failed with `error` because the process or the system has no descriptor or no
// memory left; otherwise that one connection is gone.
bool IsOutOfDescriptors(int error);

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_LISTENER_H_
