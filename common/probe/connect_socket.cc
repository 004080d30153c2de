#include "common/probe/connect_socket.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tandem::probe {

std::string NumericHost(const net::SocketAddress& address) {
  char host[NI_MAXHOST];
  const int error =
      getnameinfo(address.get(), address.length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host : "";
}

int ConnectSocket(const net::SocketAddress& to, absl::Duration timeout, host::FileDescriptor& fd,
                  std::string* local) {
  fd = host::FileDescriptor(
      socket(to.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return errno;
  int error = connect(fd.get(), to.get(), to.length) == 0 ? 0 : errno;
  net::SocketAddress from;
  from.length = sizeof(from.bytes);
  if (local != nullptr && (error == 0 || error == EINPROGRESS) &&
      getsockname(fd.get(), from.get(), &from.length) == 0) {
    *local = NumericHost(from);
  }
  if (error != EINPROGRESS) return error;
  pollfd ready{fd.get(), POLLOUT, 0};
  const int64_t milliseconds = std::max<int64_t>(0, absl::ToInt64Milliseconds(timeout));
  if (poll(&ready, 1, static_cast<int>(milliseconds)) <= 0) return ETIMEDOUT;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace tandem::probe
