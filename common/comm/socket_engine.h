// SocketEngine: sends and receives the messages of one rank of a group over its links, in issue
// order on each link. A link is a socket to a peer, in plaintext or under TLS.
//
// Without its own thread, the engine sends what the sockets accept when a message is issued, and
// moves the rest during Wait(). Data thus passes between tensors and the kernel on the thread that
// has just produced it or will read it next; other peers' data stays in the kernel while the
// message being waited for arrives.
//
// With its own thread, messages move even if nobody waits. Collectives are made of messages and
// need this: a rank computes while its peers wait for its part.
//
// A header before each message's data describes it; if it is not the expected message, the error
// names both.
#ifndef TANDEM_COMMON_COMM_SOCKET_ENGINE_H_
#define TANDEM_COMMON_COMM_SOCKET_ENGINE_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/comm/message_taker.h"
#include "common/comm/operation.h"
#include "common/comm/socket_link.h"
#include "common/host/file_descriptor.h"

namespace tandem::comm {

// Header sent before a message's data.
struct SocketHeader {
  uint64_t magic = 0;
  int64_t bytes = 0;
  char tag[112] = {};  // ends with a zero byte
};
static_assert(sizeof(SocketHeader) == 128);

// Something to wait for: a message, or a collective made of messages.
struct SocketTask {
  Operation what;
  std::vector<at::Tensor> tensors;  // kept alive until it is done
  absl::Status result;              // this and the next are set before `done`
  std::chrono::steady_clock::time_point completed_at;
  std::atomic<bool> done{false};
};

// Done when all of its messages are.
struct SocketCollective : SocketTask {
  int messages_left = 0;
};

// A message in flight. The group creates it; the engine owns it until it is done.
struct SocketMessage : SocketTask {
  int link = 0;               // index of its link
  std::byte* data = nullptr;  // what.bytes bytes
  SocketHeader header;        // to send, or as received
  bool is_send = false;
  // Whether it may begin; until then it blocks the messages after it on its link. Another message's
  // `then` sets it.
  bool ready = true;
  int64_t moved = 0;                          // bytes of header and data
  MessageTaker* taker = nullptr;              // receives only; may be null
  int64_t taken = 0;                          // bytes of data passed to `taker`
  std::function<void()> then;                 // runs after it moved, on the thread that moved it
  std::shared_ptr<SocketCollective> part_of;  // may be null
};

// Send(), Receive() and Wait(): one thread at a time. Break() and status(): any thread.
class SocketEngine {
 public:
  // `links`: one per rank, this rank's own not open; may be followed by further sets of `size`
  // links to the same peers. `has_thread`: see above.
  static absl::StatusOr<std::shared_ptr<SocketEngine>> Create(std::string name, int rank, int size,
                                                              absl::Duration timeout,
                                                              std::vector<SocketLink> links,
                                                              bool has_thread = false);
  ~SocketEngine();

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool has_encrypted_links() const { return has_encrypted_links_; }

  // FAILED_PRECONDITION if the group is broken.
  absl::Status Send(std::shared_ptr<SocketMessage> message);
  absl::Status Receive(std::shared_ptr<SocketMessage> message);
  // Issues the messages of a collective, in order; without messages it is done at once. Needs
  // `has_thread`.
  absl::Status Start(std::shared_ptr<SocketCollective> collective,
                     std::vector<std::shared_ptr<SocketMessage>> messages);
  absl::Status Wait(SocketTask& task);

  void SetTimeout(absl::Duration timeout);
  absl::Status status() const;
  // Fails all operations in flight with `reason`, here and, through the closed connections, on the
  // peers.
  void Break(absl::Status reason);

 private:
  using MessagePtr = std::shared_ptr<SocketMessage>;
  struct Line {
    SocketLink link;
    std::deque<MessagePtr> sends, receives;
    int low_water = 1;  // bytes that must arrive before the socket polls readable
  };

  SocketEngine(std::string name, int rank, int size, absl::Duration timeout,
               host::FileDescriptor wake, host::FileDescriptor nudge)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        wake_(std::move(wake)),
        nudge_(std::move(nudge)),
        timeout_(timeout) {}

  // Starts a message or collective: checks the group's state and sets the deadline.
  absl::Status Begin(SocketTask& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Issue(MessagePtr message);
  static void WriteHeader(SocketMessage& message);
  void Queue(MessagePtr message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Body of the engine's thread: moves what can move until the engine is broken.
  void Run();
  // Moves what can move without blocking, until `wanted` is done; null: everything. False if it
  // stopped before all that could move had moved.
  bool Step(const SocketMessage* wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StepSends(Line& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StepReceives(Line& line, const SocketMessage* wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Passes received bytes to the taker once there are many or all of them.
  static void LetTake(SocketMessage& message);
  bool CheckHeader(const SocketMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the socket poll readable only when a large part of the message, or its rest, has arrived.
  static void SetLowWater(Line& line);
  // Sleeps until a link is ready, the engine is broken, or the deadline.
  void Sleep(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Completes the first message of the queue, all of which has moved.
  void Complete(std::deque<MessagePtr>& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Finish(SocketTask& task);
  // Ranks whose part of the task is missing: "rank 1, rank 2".
  std::string MissingRanks(const SocketTask& task) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseConnection(const SocketMessage& message, const absl::Status& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BreakLocked(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Describe(const SocketTask& task) const {
    return DescribeOperation(name_, rank_, size_, task.what);
  }
  // Describes the collective that the message is part of, if any.
  std::string Describe(const SocketMessage& message) const {
    return DescribeOperation(name_, rank_, size_,
                             message.part_of == nullptr ? message.what : message.part_of->what);
  }

  const std::string name_;
  const int rank_;
  const int size_;
  const host::FileDescriptor wake_;   // readable once the engine is broken
  const host::FileDescriptor nudge_;  // readable when the thread has work; not open without one
  bool has_encrypted_links_ = false;
  mutable absl::Mutex mu_;
  std::vector<Line> lines_;  // by link; sockets are constant, mu_ guards all else
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SOCKET_ENGINE_H_
