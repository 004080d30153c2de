#include "common/http/exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/http/limits.h"

namespace tandem::http {

void Exchange::ReleaseBody() {
  std::string().swap(request_.body);
  if (on_release_ != nullptr) std::exchange(on_release_, nullptr)();
}

void Exchange::Reply(Response response) {
  if (streams_ || reply_.has_value()) return;  // the first answer counts
  code_ = response.code;
  reply_ = std::move(response);
}

bool Exchange::Send(std::string_view bytes) {
  while (!gone_ && !bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      sent_bytes_ += sent;
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    const absl::Duration left = WriteAllowance(write_timeout_, sent_bytes_) - waited_;
    if ((errno != EAGAIN && errno != EWOULDBLOCK) || left <= absl::ZeroDuration()) {
      gone_ = true;
      break;
    }
    const absl::Time start = absl::Now();
    pollfd state{.fd = fd_, .events = POLLOUT, .revents = 0};
    poll(&state, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    waited_ += absl::Now() - start;
  }
  return !gone_;
}

bool Exchange::BeginStream(const Response& head) {
  if (streams_ || reply_.has_value()) return false;
  streams_ = true;
  code_ = head.code;
  const Headers framing = request_.http_1_0 ? Headers() : Headers{{"Transfer-Encoding", "chunked"}};
  return Send(SerializeHead(head, framing));
}

bool Exchange::Write(std::string_view bytes) {
  if (bytes.empty()) return !gone_;  // an empty chunk would end the stream
  // In one write: the next packet would wait until this one is acknowledged.
  return Send(request_.http_1_0
                  ? std::string(bytes)
                  : absl::StrCat(absl::StrFormat("%x\r\n", bytes.size()),
                                 absl::string_view(bytes.data(), bytes.size()), "\r\n"));
}

void Exchange::EndStream() { complete_ = request_.http_1_0 || Send("0\r\n\r\n"); }

bool Exchange::ClientGone() {
  if (gone_) return true;
  pollfd state{.fd = fd_, .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace tandem::http
