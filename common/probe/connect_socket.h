// A TCP connection that is made within a time, and what is learned on the way.
#ifndef TANDEM_COMMON_PROBE_CONNECT_SOCKET_H_
#define TANDEM_COMMON_PROBE_CONNECT_SOCKET_H_

#include <string>

#include "absl/time/time.h"
#include "common/net/socket_address.h"
#include "common/status/file_descriptor.h"

namespace tandem::probe {

// Answers errno, 0 where `fd` is connected; it does not block. `local`, which may be null, becomes
// the address from which the connection goes, empty where nothing routes.
int ConnectSocket(const net::SocketAddress& to, absl::Duration timeout, FileDescriptor& fd,
                  std::string* local = nullptr);

// The address as a number; empty where it is none.
std::string NumericHost(const net::SocketAddress& address);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_CONNECT_SOCKET_H_
