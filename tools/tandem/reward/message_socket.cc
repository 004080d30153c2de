#include "tools/tandem/reward/message_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/poll_timeout.h"
#include "common/status/status_macros.h"

namespace tandem::reward {
namespace {

absl::Status PeerIsGone() { return absl::UnavailableError("the socket is closed"); }

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

MessageSocket::~MessageSocket() { close(fd_); }

absl::Status MessageSocket::Await(short events, absl::Time deadline) const {  // NOLINT
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    pollfd entry = {fd_, events, 0};
    if (poll(&entry, 1, net::PollTimeout(left)) > 0) return absl::OkStatus();
  }
}

absl::Status MessageSocket::Write(absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (WouldBlock(errno)) {
      RETURN_IF_ERROR(Await(POLLOUT, deadline));
    } else {
      return PeerIsGone();
    }
  }
  return absl::OkStatus();
}

absl::Status MessageSocket::Read(char* bytes, size_t size, absl::Time deadline) {
  while (size > 0) {
    const ssize_t got = recv(fd_, bytes, size, MSG_DONTWAIT);
    if (got > 0) {
      bytes += got;
      size -= static_cast<size_t>(got);
    } else if (got < 0 && WouldBlock(errno)) {
      RETURN_IF_ERROR(Await(POLLIN, deadline));
    } else {
      return PeerIsGone();
    }
  }
  return absl::OkStatus();
}

absl::Status MessageSocket::Send(absl::string_view message, absl::Time deadline) {
  if (message.size() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected a message of at most ", kMaxMessageBytes, " bytes, found ", message.size()));
  }
  char head[4];
  for (size_t i = 0; i < sizeof(head); ++i) head[i] = static_cast<char>(message.size() >> (8 * i));
  RETURN_IF_ERROR(Write({head, sizeof(head)}, deadline));
  return Write(message, deadline);
}

absl::StatusOr<std::string> MessageSocket::Receive(absl::Time deadline) {
  char head[4];
  RETURN_IF_ERROR(Read(head, sizeof(head), deadline));
  size_t size = 0;
  for (size_t i = 0; i < sizeof(head); ++i) {
    size |= static_cast<size_t>(static_cast<uint8_t>(head[i])) << (8 * i);
  }
  if (size > kMaxMessageBytes) {
    return absl::DataLossError(
        absl::StrCat("expected a message of at most ", kMaxMessageBytes, " bytes, found ", size));
  }
  std::string message(size, '\0');
  RETURN_IF_ERROR(Read(message.data(), size, deadline));
  return message;
}

}  // namespace tandem::reward
