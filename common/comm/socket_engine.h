// SocketEngine: carries out the messages of one rank of a group over its links, those of a link in
// the order in which they were issued. A link is a socket to a peer, in plaintext or under TLS.
//
// Without a thread of its own, bytes leave when a message is issued, as far as the sockets take
// them, and move while somebody waits. So data goes from where it lies into the kernel, and from
// there to where it belongs, on the thread that has just made it or will next read it; what other
// peers bring is left in the kernel while the message that is waited for arrives.
//
// With a thread, messages move whether somebody waits or not: collectives are made of messages, and
// a rank computes while its peers wait for its part.
//
// Before its data, a message says what it is; one that is not what was to be received is an error
// that names both.
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
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// What goes before a message's data.
struct SocketHeader {
  uint64_t magic = 0;
  int64_t bytes = 0;
  char tag[112] = {};  // ends with a zero byte
};
static_assert(sizeof(SocketHeader) == 128);

// What is waited for: a message, or a collective made of messages.
struct SocketTask {
  Operation what;
  std::vector<at::Tensor> tensors;  // held until it is done
  absl::Status result;              // this and the next before `done`
  std::chrono::steady_clock::time_point completed_at;
  std::atomic<bool> done{false};
};

// Done when all of its messages are.
struct SocketCollective : SocketTask {
  int messages_left = 0;
};

// A message under way. Made by the group, then the engine's until it is done.
struct SocketMessage : SocketTask {
  int link = 0;               // which carries it
  std::byte* data = nullptr;  // what.bytes of them
  SocketHeader header;        // to be sent, or received
  bool is_send = false;
  // Whether it may begin; one that may not holds up those after it on its link. Set by the `then`
  // of another message.
  bool ready = true;
  int64_t moved = 0;                          // bytes of header and data
  MessageTaker* taker = nullptr;              // of a message to be received, if it has one
  int64_t taken = 0;                          // bytes of data that it was told of
  std::function<void()> then;                 // once it has moved; on the thread that moved it
  std::shared_ptr<SocketCollective> part_of;  // may be null
};

// Send, Receive and Wait on one thread at a time; Break and status on any.
class SocketEngine {
 public:
  // `links`: `size` to the peers by rank, of which the own one is not open; where there are several
  // times as many, the first `size` are followed by further links to the same peers.
  // `has_thread`: see above.
  static absl::StatusOr<std::shared_ptr<SocketEngine>> Create(std::string name, int rank, int size,
                                                              absl::Duration timeout,
                                                              std::vector<SocketLink> links,
                                                              bool has_thread = false);
  ~SocketEngine();

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool has_encrypted_links() const { return has_encrypted_links_; }

  // FAILED_PRECONDITION where the group is broken.
  absl::Status Send(std::shared_ptr<SocketMessage> message);
  absl::Status Receive(std::shared_ptr<SocketMessage> message);
  // Issues the messages of a collective, in order. With a thread only. One without messages is done
  // at once.
  absl::Status Start(std::shared_ptr<SocketCollective> collective,
                     std::vector<std::shared_ptr<SocketMessage>> messages);
  absl::Status Wait(SocketTask& task);

  void SetTimeout(absl::Duration timeout);
  absl::Status status() const;
  // Ends what is under way with `reason`, here and, by the closed connections, on the peers.
  void Break(absl::Status reason);

 private:
  using MessagePtr = std::shared_ptr<SocketMessage>;
  struct Line {
    SocketLink link;
    std::deque<MessagePtr> sends, receives;
    int low_water = 1;  // bytes that are there before it is ready to be read
  };

  SocketEngine(std::string name, int rank, int size, absl::Duration timeout, FileDescriptor wake,
               FileDescriptor nudge)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        wake_(std::move(wake)),
        nudge_(std::move(nudge)),
        timeout_(timeout) {}

  // What every message and collective begins with.
  absl::Status Begin(SocketTask& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Issue(MessagePtr message);
  static void WriteHeader(SocketMessage& message);
  void Queue(MessagePtr message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The thread: moves what can be moved until the engine is broken.
  void Run();
  // Moves what can be moved without waiting, until `wanted` is done; null: whatever there is, and
  // false where it left off before all had moved.
  bool Step(const SocketMessage* wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StepSends(Line& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StepReceives(Line& line, const SocketMessage* wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the taker what has come, if it is much or all of it.
  static void LetTake(SocketMessage& message);
  bool CheckHeader(const SocketMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets a socket be ready to be read when there is a good part of the message, or its rest.
  static void SetLowWater(Line& line);
  // Until a link is ready, the engine is broken, or the deadline.
  void Sleep(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The message is the first of the queue, and all of it has moved.
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
  // By the collective that a message is part of.
  std::string Describe(const SocketMessage& message) const {
    return DescribeOperation(name_, rank_, size_,
                             message.part_of == nullptr ? message.what : message.part_of->what);
  }

  const std::string name_;
  const int rank_;
  const int size_;
  const FileDescriptor wake_;   // readable once the engine is broken
  const FileDescriptor nudge_;  // readable when the thread has something new to do; none without
  bool has_encrypted_links_ = false;
  mutable absl::Mutex mu_;
  std::vector<Line> lines_;  // by link; the sockets are constant, all else guarded by mu_
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SOCKET_ENGINE_H_
