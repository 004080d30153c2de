// SocketEngine: carries out the messages of one rank of a group over a socket to each peer, those
// to and from a peer in the order in which they were issued.
//
// There is no thread of its own: bytes leave when a message is issued, as far as the sockets take
// them, and move while somebody waits. So data goes from where it lies into the kernel, and from
// there to where it belongs, on the thread that has just made it or will next read it; what other
// peers bring is left in the kernel while the message that is waited for arrives.
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
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/comm/message_taker.h"
#include "common/comm/operation.h"
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// What goes before a message's data.
struct SocketHeader {
  uint64_t magic = 0;
  int64_t bytes = 0;
  char tag[112] = {};  // ends with a zero byte
};
static_assert(sizeof(SocketHeader) == 128);

// A message under way. Made by the group, then the engine's until it is done.
struct SocketMessage {
  Operation what;
  at::Tensor tensor;    // held
  SocketHeader header;  // to be sent, or received
  bool is_send = false;
  int64_t moved = 0;              // bytes of header and data
  MessageTaker* taker = nullptr;  // of a message to be received, if it has one
  int64_t taken = 0;              // bytes of data that it was told of
  absl::Status result;            // this and the next before `done`
  std::chrono::steady_clock::time_point completed_at;
  std::atomic<bool> done{false};
};

// Send, Receive and Wait on one thread at a time; Break and status on any.
class SocketEngine {
 public:
  // `links`: by rank, sockets that do not block; the own one is not open.
  static absl::StatusOr<std::shared_ptr<SocketEngine>> Create(std::string name, int rank,
                                                              absl::Duration timeout,
                                                              std::vector<FileDescriptor> links);
  ~SocketEngine();

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  // FAILED_PRECONDITION where the group is broken.
  absl::Status Send(std::shared_ptr<SocketMessage> message);
  absl::Status Receive(std::shared_ptr<SocketMessage> message);
  absl::Status Wait(SocketMessage& message);

  void SetTimeout(absl::Duration timeout);
  absl::Status status() const;
  // Ends what is under way with `reason`, here and, by the closed connections, on the peers.
  void Break(absl::Status reason);

 private:
  using MessagePtr = std::shared_ptr<SocketMessage>;
  struct Peer {
    FileDescriptor socket;
    std::deque<MessagePtr> sends, receives;
    int low_water = 1;  // bytes that are there before it is ready to be read
  };

  SocketEngine(std::string name, int rank, absl::Duration timeout, FileDescriptor wake)
      : name_(std::move(name)), rank_(rank), wake_(std::move(wake)), timeout_(timeout) {}

  absl::Status Issue(MessagePtr message, bool is_send);
  // Moves what can be moved without waiting, until `wanted` is done.
  void Step(const SocketMessage& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StepSends(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StepReceives(Peer& peer, const SocketMessage& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the taker what has come, if it is much or all of it.
  static void LetTake(SocketMessage& message);
  bool CheckHeader(const SocketMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets a socket be ready to be read when there is a good part of the message, or its rest.
  static void SetLowWater(Peer& peer);
  // Until a socket is ready, the engine is broken, or the deadline.
  void Sleep(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The message is the first of the queue, and all of it has moved.
  static void Complete(std::deque<MessagePtr>& queue);
  void LoseConnection(const SocketMessage& message, int error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BreakLocked(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Describe(const SocketMessage& message) const {
    return DescribeOperation(name_, rank_, size(), message.what);
  }

  const std::string name_;
  const int rank_;
  const FileDescriptor wake_;  // readable once the engine is broken
  mutable absl::Mutex mu_;
  std::vector<Peer> peers_;  // by rank; the sockets are constant, the queues guarded by mu_
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SOCKET_ENGINE_H_
