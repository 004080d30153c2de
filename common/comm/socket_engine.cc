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
// Bytes that must arrive to wake a thread: half of a core's cache, several loopback packets.
constexpr int64_t kMostLowWater = 256 << 10;
// With a taker: most bytes per read, and fewest per Take() except the last.
constexpr int64_t kMostTaken = 256 << 10;
constexpr int64_t kLeastTaken = 64 << 10;
static_assert(kLeastTaken % kTakenGrain == 0);
// Bytes that the thread moves on one link before it serves the others and yields the lock.
constexpr int64_t kMostAtATime = 4 << 20;

std::string TagOf(const SocketHeader& header) {
  return std::string(header.tag, strnlen(header.tag, sizeof(header.tag)));
}

// The parts of header and data that have not moved yet.
struct Remainder {
  explicit Remainder(SocketMessage& message) {
    const int64_t of_header = std::max<int64_t>(0, kHeaderBytes - message.moved);
    const int64_t of_data = std::max<int64_t>(0, message.moved - kHeaderBytes);
    if (of_header > 0) {
      parts[count++] = {reinterpret_cast<std::byte*>(&message.header) + message.moved,
                        static_cast<size_t>(of_header)};
    }
    if (message.what.bytes > of_data) {
      parts[count++] = {message.data + of_data, static_cast<size_t>(message.what.bytes - of_data)};
    }
  }
  std::array<iovec, 2> parts;
  size_t count = 0;
};

bool HasMoved(const SocketMessage& message) {
  return message.moved == kHeaderBytes + message.what.bytes;
}

void Ring(const host::FileDescriptor& event) {
  const uint64_t one = 1;
  (void)!write(event.get(), &one, sizeof(one));
}

}  // namespace

absl::StatusOr<std::shared_ptr<SocketEngine>> SocketEngine::Create(std::string name, int rank,
                                                                   int size, absl::Duration timeout,
                                                                   std::vector<SocketLink> links,
                                                                   bool has_thread) {
  host::FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  host::FileDescriptor nudge;
  if (has_thread) nudge = host::FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open() || (has_thread && !nudge.is_open())) return SocketError("eventfd");
  std::shared_ptr<SocketEngine> engine(
      new SocketEngine(std::move(name), rank, size, timeout, std::move(wake), std::move(nudge)));
  for (SocketLink& link : links) {
    if (link.is_encrypted()) engine->has_encrypted_links_ = true;
    engine->lines_.emplace_back().link = std::move(link);
  }
  if (has_thread) engine->thread_ = std::thread([raw = engine.get()] { raw->Run(); });
  return engine;
}

SocketEngine::~SocketEngine() {
  Break(absl::AbortedError(absl::StrCat("group ", name_, ", rank ", rank_, ": it was destroyed")));
  if (thread_.joinable()) thread_.join();
}

absl::Status SocketEngine::Send(MessagePtr message) {
  message->is_send = true;
  WriteHeader(*message);
  return Issue(std::move(message));
}

absl::Status SocketEngine::Receive(MessagePtr message) { return Issue(std::move(message)); }

void SocketEngine::WriteHeader(SocketMessage& message) {
  message.header.magic = kMagic;
  message.header.bytes = message.what.bytes;
  const size_t length = std::min(message.what.tag.size(), sizeof(message.header.tag) - 1);
  std::memcpy(message.header.tag, message.what.tag.data(), length);
}

absl::Status SocketEngine::Begin(SocketTask& task) {
  task.what.timeout = timeout_;
  task.what.deadline = absl::Now() + timeout_;
  if (broken_.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      Describe(task), ": the group is broken; create a new one; cause: ", broken_.message()));
}

void SocketEngine::Queue(MessagePtr message) {
  Line& line = lines_[message->link];
  (message->is_send ? line.sends : line.receives).push_back(std::move(message));
}

absl::Status SocketEngine::Issue(MessagePtr message) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(Begin(*message));
  Line& line = lines_[message->link];
  const bool is_send = message->is_send;
  Queue(std::move(message));
  if (nudge_.is_open()) {
    Ring(nudge_);
  } else if (is_send) {
    StepSends(line);
  }
  return absl::OkStatus();
}

absl::Status SocketEngine::Start(std::shared_ptr<SocketCollective> collective,
                                 std::vector<MessagePtr> messages) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(Begin(*collective));
  collective->messages_left = static_cast<int>(messages.size());
  if (messages.empty()) {
    Finish(*collective);
    return absl::OkStatus();
  }
  for (MessagePtr& message : messages) {
    if (message->is_send) WriteHeader(*message);
    message->part_of = collective;
    Queue(std::move(message));
  }
  Ring(nudge_);
  return absl::OkStatus();
}

absl::Status SocketEngine::Wait(SocketTask& task) {
  if (task.done.load(std::memory_order_acquire)) return task.result;
  absl::MutexLock lock(&mu_);
  const auto out_of_time = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    BreakLocked(absl::DeadlineExceededError(absl::StrCat(Describe(task), ": not finished after ",
                                                         absl::FormatDuration(task.what.timeout),
                                                         "; waits for ", MissingRanks(task))));
    return task.result;
  };
  if (nudge_.is_open()) {
    // mu_ is released while this waits; the thread that moves the messages takes it.
    const auto done = [&task] { return task.done.load(std::memory_order_acquire); };
    if (mu_.AwaitWithDeadline(absl::Condition(&done), task.what.deadline)) return task.result;
    return out_of_time();
  }
  const auto& message = static_cast<const SocketMessage&>(task);
  while (true) {
    Step(&message);
    if (task.done.load(std::memory_order_acquire)) return task.result;
    if (absl::Now() >= task.what.deadline) return out_of_time();
    Sleep(task.what.deadline);
  }
}

void SocketEngine::Run() {
  absl::MutexLock lock(&mu_);
  while (broken_.ok()) {
    if (Step(nullptr)) {
      // The thread needs no deadline: each operation's Wait() watches its own.
      Sleep(absl::InfiniteFuture());
    } else {
      // Others have waited for the lock while much was moved.
      mu_.Unlock();
      mu_.Lock();
    }
  }
}

std::string SocketEngine::MissingRanks(const SocketTask& task) const {
  std::string ranks;
  for (size_t link = 0; link < lines_.size(); ++link) {
    const auto is_of_task = [&](const MessagePtr& message) {
      return message.get() == &task || message->part_of.get() == &task;
    };
    const Line& line = lines_[link];
    if (std::any_of(line.sends.begin(), line.sends.end(), is_of_task) ||
        std::any_of(line.receives.begin(), line.receives.end(), is_of_task)) {
      absl::StrAppend(&ranks, ranks.empty() ? "" : ", ", "rank ", static_cast<int>(link) % size_);
    }
  }
  return ranks;
}

void SocketEngine::SetLowWater(Line& line) {
  // TLS adds bytes of its own, so how many will arrive on the socket is not known here.
  if (line.link.is_encrypted()) return;
  const SocketMessage& next = *line.receives.front();
  // Until the header is here, what follows it may be another message than the expected one.
  const int64_t end = next.moved < kHeaderBytes ? kHeaderBytes : kHeaderBytes + next.what.bytes;
  const int64_t left = end - next.moved;
  const int low_water = static_cast<int>(std::clamp<int64_t>(left, 1, kMostLowWater));
  if (low_water == line.low_water) return;
  // If the system refuses it, the thread just wakes more often.
  setsockopt(line.link.socket().get(), SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof(low_water));
  line.low_water = low_water;
}

void SocketEngine::Sleep(absl::Time deadline) {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}, {nudge_.get(), POLLIN, 0}};
  for (Line& line : lines_) {
    const bool reads = !line.receives.empty() && line.receives.front()->ready;
    const bool writes = !line.sends.empty() && line.sends.front()->ready;
    if (reads) SetLowWater(line);
    const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0);
    if (events != 0) entries.push_back({line.link.socket().get(), static_cast<short>(events), 0});
  }
  const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
  mu_.Unlock();
  // Rounded up, so that the last millisecond is not spent spinning; the caller looks again at least
  // every ten seconds. Without the lock, so that others can issue and break meanwhile.
  poll(entries.data(), entries.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 10'000)) + 1);
  uint64_t rung;
  if (entries[1].revents != 0) (void)!read(nudge_.get(), &rung, sizeof(rung));
  mu_.Lock();
}

bool SocketEngine::Step(const SocketMessage* wanted) {
  bool all = true;
  for (Line& line : lines_) all = StepSends(line) && all;
  Line* const first = wanted == nullptr || wanted->is_send ? nullptr : &lines_[wanted->link];
  if (first != nullptr) StepReceives(*first, wanted);
  for (Line& line : lines_) {
    if (&line != first) all = StepReceives(line, wanted) && all;
  }
  return all;
}

bool SocketEngine::StepSends(Line& line) {
  int64_t moved = 0;
  while (!line.sends.empty() && broken_.ok()) {
    SocketMessage& message = *line.sends.front();
    if (!message.ready) return true;
    if (!HasMoved(message)) {
      const Remainder rest(message);
      const Moved some = line.link.Send(absl::MakeSpan(rest.parts).subspan(0, rest.count));
      message.moved += some.bytes;
      moved += some.bytes;
      if (!some.error.ok()) {
        LoseConnection(message, some.error);
        return true;
      }
      if (some.bytes == 0) return true;
      if (!HasMoved(message)) {
        if (nudge_.is_open() && moved >= kMostAtATime) return false;
        continue;
      }
    }
    absl::Status error;
    if (!line.link.Flush(error)) {
      if (!error.ok()) LoseConnection(message, error);
      return true;
    }
    Complete(line.sends);
    if (nudge_.is_open() && moved >= kMostAtATime) return false;
  }
  return true;
}

bool SocketEngine::StepReceives(Line& line, const SocketMessage* wanted) {
  int64_t moved = 0;
  while (!line.receives.empty() && (wanted == nullptr || !wanted->done.load()) && broken_.ok()) {
    SocketMessage& message = *line.receives.front();
    if (!message.ready) return true;
    // The header alone, so that nothing is written to where the data of another message belongs.
    const bool in_header = message.moved < kHeaderBytes;
    if (!in_header && HasMoved(message)) {
      const bool releases = message.then != nullptr;
      Complete(line.receives);
      // `then` may have released a message on a link that this step has already passed.
      if (nudge_.is_open() && (releases || moved >= kMostAtATime)) return false;
      continue;
    }
    const Remainder rest(message);
    auto most = static_cast<int64_t>(rest.parts[0].iov_len);
    if (message.taker != nullptr) most = std::min(most, kMostTaken);
    const Moved some = line.link.Receive(rest.parts[0].iov_base, most);
    if (!some.error.ok()) {
      LoseConnection(message, some.error);
      return true;
    }
    if (some.bytes == 0) return true;
    message.moved += some.bytes;
    moved += some.bytes;
    if (in_header && message.moved == kHeaderBytes && !CheckHeader(message)) return true;
    if (!in_header && message.taker != nullptr) LetTake(message);
  }
  return true;
}

void SocketEngine::LetTake(SocketMessage& message) {
  const int64_t here = message.moved - kHeaderBytes;
  const int64_t end = here == message.what.bytes ? here : here / kLeastTaken * kLeastTaken;
  if (end == message.taken) return;
  std::byte* const place = message.data + message.taken;
  message.taker->Take(message.taken, place, place, end - message.taken,
                      /*stays=*/true);
  message.taken = end;
}

void SocketEngine::Finish(SocketTask& task) {
  task.completed_at = std::chrono::steady_clock::now();
  task.done.store(true, std::memory_order_release);
}

void SocketEngine::Complete(std::deque<MessagePtr>& queue) {
  const MessagePtr message = std::move(queue.front());
  queue.pop_front();
  // Before `done`: whoever sees that finds the messages that `then` releases ready.
  if (message->then != nullptr) message->then();
  message->then = nullptr;  // what it holds may hold this message
  Finish(*message);
  if (message->part_of != nullptr && --message->part_of->messages_left == 0) {
    Finish(*message->part_of);
  }
}

bool SocketEngine::CheckHeader(const SocketMessage& message) {
  const SocketHeader& header = message.header;
  bool right = header.magic == kMagic && header.bytes == message.what.bytes;
  // Detects ranks that issue collectives in different orders.
  if (right && message.part_of != nullptr) {
    right = TagOf(header) == message.what.tag.substr(0, sizeof(header.tag) - 1);
  }
  if (right) return true;
  const std::string found = header.magic != kMagic
                                ? "invalid data"
                                : absl::StrCat("'", TagOf(header), "' of ", header.bytes, " bytes");
  BreakLocked(absl::InternalError(
      absl::StrCat(Describe(message), ": rank ", message.what.peer, " sends ", found, " instead")));
  return false;
}

void SocketEngine::LoseConnection(const SocketMessage& message, const absl::Status& error) {
  const absl::string_view means =
      absl::IsDataLoss(error) ? " is cut off because its link corrupts data: " : " is gone: ";
  BreakLocked(absl::Status(error.code(), absl::StrCat(Describe(message), ": rank ",
                                                      message.what.peer, means, error.message())));
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
  for (const Line& line : lines_) {
    // Not close(): another thread may be in poll() with this number, which could become another
    // file's.
    if (line.link.is_open()) shutdown(line.link.socket().get(), SHUT_RDWR);
  }
  Ring(wake_);
  EndAll();
}

void SocketEngine::EndAll() {
  const auto end = [&](SocketTask& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (task.done.load()) return;
    const std::string description = Describe(task);
    task.result =
        absl::StartsWith(broken_.message(), description)
            ? broken_
            : absl::Status(broken_.code(),
                           absl::StrCat(description, ": ended because of: ", broken_.message()));
    task.done.store(true, std::memory_order_release);
  };
  for (Line& line : lines_) {
    for (auto* queue : {&line.sends, &line.receives}) {
      for (const MessagePtr& message : *queue) {
        if (message->part_of == nullptr) {
          end(*message);
        } else {
          end(*message->part_of);
        }
        message->then = nullptr;
      }
      queue->clear();
    }
  }
}

}  // namespace tandem::comm
