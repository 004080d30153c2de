#include "common/comm/socket_engine.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/link_mesh.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr uint64_t kMagic = 0x6d65646e61742e31;
constexpr int64_t kHeaderBytes = sizeof(SocketHeader);
// What a thread is woken for: half of what a core's cache holds, and several packets of the
// loopback.
constexpr int64_t kMostLowWater = 256 << 10;
// What is read, and what is told of, at a time where a message has a taker.
constexpr int64_t kMostTaken = 256 << 10;
constexpr int64_t kLeastTaken = 64 << 10;
static_assert(kLeastTaken % kTakenGrain == 0);

std::string TagOf(const SocketHeader& header) {
  return std::string(header.tag, strnlen(header.tag, sizeof(header.tag)));
}

// What is left of header and data.
struct Rest {
  explicit Rest(SocketMessage& message) {
    const int64_t of_header = std::max<int64_t>(0, kHeaderBytes - message.moved);
    const int64_t of_data = std::max<int64_t>(0, message.moved - kHeaderBytes);
    if (of_header > 0) {
      parts[count++] = {reinterpret_cast<std::byte*>(&message.header) + message.moved,
                        static_cast<size_t>(of_header)};
    }
    if (message.what.bytes > of_data) {
      parts[count++] = {static_cast<std::byte*>(message.tensor.data_ptr()) + of_data,
                        static_cast<size_t>(message.what.bytes - of_data)};
    }
  }
  std::array<iovec, 2> parts;
  size_t count = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<SocketEngine>> SocketEngine::Create(
    std::string name, int rank, absl::Duration timeout, std::vector<FileDescriptor> links) {
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return SocketError("eventfd");
  std::shared_ptr<SocketEngine> engine(
      new SocketEngine(std::move(name), rank, timeout, std::move(wake)));
  for (FileDescriptor& link : links) engine->peers_.emplace_back().socket = std::move(link);
  return engine;
}

SocketEngine::~SocketEngine() {
  Break(absl::AbortedError(absl::StrCat("group ", name_, ", rank ", rank_, ": it was destroyed")));
}

absl::Status SocketEngine::Send(MessagePtr message) {
  message->header.magic = kMagic;
  message->header.bytes = message->what.bytes;
  const size_t length = std::min(message->what.tag.size(), sizeof(message->header.tag) - 1);
  std::memcpy(message->header.tag, message->what.tag.data(), length);
  return Issue(std::move(message), /*is_send=*/true);
}

absl::Status SocketEngine::Receive(MessagePtr message) {
  return Issue(std::move(message), /*is_send=*/false);
}

absl::Status SocketEngine::Issue(MessagePtr message, bool is_send) {
  absl::MutexLock lock(&mu_);
  message->what.timeout = timeout_;
  message->what.deadline = absl::Now() + timeout_;
  if (!broken_.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        Describe(*message), ": the group is broken, make a new one; cause: ", broken_.message()));
  }
  Peer& peer = peers_[message->what.peer];
  message->is_send = is_send;
  (is_send ? peer.sends : peer.receives).push_back(std::move(message));
  if (is_send) StepSends(peer);
  return absl::OkStatus();
}

absl::Status SocketEngine::Wait(SocketMessage& message) {
  if (message.done.load(std::memory_order_acquire)) return message.result;
  absl::MutexLock lock(&mu_);
  while (true) {
    Step(message);
    if (message.done.load(std::memory_order_acquire)) return message.result;
    if (absl::Now() >= message.what.deadline) {
      BreakLocked(absl::DeadlineExceededError(absl::StrCat(
          Describe(message), ": not done after ", absl::FormatDuration(message.what.timeout),
          "; waits for rank ", message.what.peer)));
      continue;
    }
    Sleep(message.what.deadline);
  }
}

void SocketEngine::SetLowWater(Peer& peer) {
  const SocketMessage& next = *peer.receives.front();
  // How much follows is certain once the header has said it.
  const int64_t end = next.moved < kHeaderBytes ? kHeaderBytes : kHeaderBytes + next.what.bytes;
  const int64_t left = end - next.moved;
  const int low_water = static_cast<int>(std::clamp<int64_t>(left, 1, kMostLowWater));
  if (low_water == peer.low_water) return;
  // Where it is refused the thread wakes more often.
  setsockopt(peer.socket.get(), SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof(low_water));
  peer.low_water = low_water;
}

void SocketEngine::Sleep(absl::Time deadline) {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  for (Peer& peer : peers_) {
    if (!peer.receives.empty()) SetLowWater(peer);
    const int events = (peer.receives.empty() ? 0 : POLLIN) | (peer.sends.empty() ? 0 : POLLOUT);
    if (events != 0) entries.push_back({peer.socket.get(), static_cast<short>(events), 0});
  }
  const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
  mu_.Unlock();
  poll(entries.data(), entries.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 10'000)) + 1);
  mu_.Lock();
}

void SocketEngine::Step(const SocketMessage& wanted) {
  for (Peer& peer : peers_) StepSends(peer);
  Peer* const first = wanted.is_send ? nullptr : &peers_[wanted.what.peer];
  if (first != nullptr) StepReceives(*first, wanted);
  for (Peer& peer : peers_) {
    if (&peer != first) StepReceives(peer, wanted);
  }
}

void SocketEngine::StepSends(Peer& peer) {
  while (!peer.sends.empty() && broken_.ok()) {
    SocketMessage& message = *peer.sends.front();
    Rest rest(message);
    msghdr header = {};
    header.msg_iov = rest.parts.data();
    header.msg_iovlen = rest.count;
    const ssize_t n = sendmsg(peer.socket.get(), &header, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) return LoseConnection(message, errno);
    message.moved += n;
    if (message.moved < kHeaderBytes + message.what.bytes) continue;
    Complete(peer.sends);
  }
}

void SocketEngine::StepReceives(Peer& peer, const SocketMessage& wanted) {
  while (!peer.receives.empty() && !wanted.done.load() && broken_.ok()) {
    SocketMessage& message = *peer.receives.front();
    // The header alone, so that nothing is written to where the data of another message belongs.
    const bool in_header = message.moved < kHeaderBytes;
    if (!in_header && message.moved == kHeaderBytes + message.what.bytes) {
      Complete(peer.receives);
      continue;
    }
    const Rest rest(message);
    size_t most = rest.parts[0].iov_len;
    if (message.taker != nullptr) most = std::min(most, static_cast<size_t>(kMostTaken));
    const ssize_t n = recv(peer.socket.get(), rest.parts[0].iov_base, most, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return LoseConnection(message, n == 0 ? 0 : errno);
    message.moved += n;
    if (in_header && message.moved == kHeaderBytes && !CheckHeader(message)) return;
    if (!in_header && message.taker != nullptr) LetTake(message);
  }
}

void SocketEngine::LetTake(SocketMessage& message) {
  const int64_t here = message.moved - kHeaderBytes;
  const int64_t end = here == message.what.bytes ? here : here / kLeastTaken * kLeastTaken;
  if (end == message.taken) return;
  auto* const place = static_cast<std::byte*>(message.tensor.data_ptr()) + message.taken;
  message.taker->Take(message.taken, place, place, end - message.taken,
                      /*stays=*/true);
  message.taken = end;
}

void SocketEngine::Complete(std::deque<MessagePtr>& queue) {
  SocketMessage& message = *queue.front();
  message.completed_at = std::chrono::steady_clock::now();
  message.done.store(true, std::memory_order_release);
  queue.pop_front();
}

bool SocketEngine::CheckHeader(const SocketMessage& message) {
  if (message.header.magic == kMagic && message.header.bytes == message.what.bytes) return true;
  const std::string found =
      message.header.magic != kMagic
          ? "what is no message"
          : absl::StrCat("'", TagOf(message.header), "' of ", message.header.bytes, " bytes");
  BreakLocked(absl::InternalError(
      absl::StrCat(Describe(message), ": rank ", message.what.peer, " sends ", found, " instead")));
  return false;
}

void SocketEngine::LoseConnection(const SocketMessage& message, int error) {
  BreakLocked(absl::UnavailableError(absl::StrCat(
      Describe(message), ": rank ", message.what.peer,
      " is gone: ", error == 0 ? "it has closed the connection" : std::strerror(error))));
}

void SocketEngine::SetTimeout(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  timeout_ = timeout;
}

absl::Status SocketEngine::status() const {
  absl::MutexLock lock(&mu_);
  return broken_;
}

void SocketEngine::Break(absl::Status reason) {
  absl::MutexLock lock(&mu_);
  BreakLocked(std::move(reason));
}

void SocketEngine::BreakLocked(absl::Status reason) {
  if (!broken_.ok()) return;
  broken_ = std::move(reason);
  for (const Peer& peer : peers_) {
    if (peer.socket.is_open()) shutdown(peer.socket.get(), SHUT_RDWR);
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  EndAll();
}

void SocketEngine::EndAll() {
  for (Peer& peer : peers_) {
    for (auto* queue : {&peer.sends, &peer.receives}) {
      for (const MessagePtr& message : *queue) {
        const std::string description = Describe(*message);
        message->result =
            absl::StartsWith(broken_.message(), description)
                ? broken_
                : absl::Status(broken_.code(),
                               absl::StrCat(description, ": ended, for ", broken_.message()));
        message->done.store(true, std::memory_order_release);
      }
      queue->clear();
    }
  }
}

}  // namespace tandem::comm
