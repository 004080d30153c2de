// Opens a TCP connection within a deadline, and reports the local address.
#ifndef TANDEM_COMMON_PROBE_CONNECT_SOCKET_H_
#define TANDEM_COMMON_PROBE_CONNECT_SOCKET_H_

#include <string>

#include "absl/time/time.h"
#include "common/host/file_descriptor.h"
#include "common/net/socket_address.h"

namespace tandem::probe {

// Returns 0 if `fd` is connected, else errno; `fd` is non-blocking. `local`, which may be null,
// receives the connection's source address; unchanged if there is no route.
int ConnectSocket(const net::SocketAddress& to, absl::Duration timeout, host::FileDescriptor& fd,
                  std::string* local = nullptr);

// The address as a number; empty if it is none.
std::string NumericHost(const net::SocketAddress& address);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_CONNECT_SOCKET_H_
