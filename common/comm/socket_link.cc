#include "common/comm/socket_link.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace tandem::comm {
namespace {

// Error of a call that returned a negative value; OK if it would have blocked.
absl::Status SystemError() {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::OkStatus();
  return absl::UnavailableError(std::strerror(errno));
}

}  // namespace

Moved SocketLink::Send(absl::Span<const iovec> parts) {
  Moved moved;
  if (tls_ != nullptr) {
    for (const iovec& part : parts) {
      const Moved of_part = tls_->Write(part.iov_base, static_cast<int64_t>(part.iov_len));
      moved.bytes += of_part.bytes;
      moved.error = of_part.error;
      if (!moved.error.ok() || of_part.bytes < static_cast<int64_t>(part.iov_len)) break;
    }
    return moved;
  }
  msghdr header = {};
  header.msg_iov = const_cast<iovec*>(parts.data());
  header.msg_iovlen = parts.size();
  while (true) {
    const ssize_t n = sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) moved.error = SystemError();
    if (n > 0) moved.bytes = n;
    return moved;
  }
}

Moved SocketLink::Receive(void* data, int64_t size) {
  if (tls_ != nullptr) return tls_->Read(data, size);
  Moved moved;
  while (true) {
    const ssize_t n = recv(socket_.get(), data, static_cast<size_t>(size), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) moved.error = SystemError();
    if (n == 0) moved.error = absl::UnavailableError("the peer closed the connection");
    if (n > 0) moved.bytes = n;
    return moved;
  }
}

}  // namespace tandem::comm
