// SharedEngine: carries out the operations of one rank of a shared-memory group: collectives in the
// order in which they were issued, messages of each pair in theirs, apart from the collectives.
//
// Who does the work: the thread that waits for a result does, while it waits; otherwise a thread of
// the engine's, so that operations go on while the rank computes. Either sleeps on the rank's
// doorbell whenever nothing can be moved. An engine without such a thread moves messages when they
// are issued and while somebody waits: the thread that then looks at them finds them in its cache.
//
// Before a collective's data is used the ranks' notices of it are compared: what one rank calls
// all_gather 'layers.3' and another broadcast 'layers.3' is an error that names both.
//
// Locks: step_mu_ before mu_. step_mu_ is held while work is done, mu_ for moments.
#ifndef TANDEM_COMMON_COMM_SHARED_ENGINE_H_
#define TANDEM_COMMON_COMM_SHARED_ENGINE_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/comm/local_links.h"
#include "common/comm/operation.h"
#include "common/comm/shared_segment.h"
#include "common/comm/shared_transfer.h"

namespace tandem::comm {

// An operation and what is left of it. Made by the group, then the engine's until it is done.
struct SharedOperation {
  enum class Stream { kCollective, kSend, kReceive };

  Operation what;
  Stream stream = Stream::kCollective;
  Notice notice;               // of a collective
  uint64_t awaited_peers = 0;  // peers whose notices must be there before it is done, as bits
  std::vector<SharedTransfer> phases;  // one after the other
  std::vector<at::Tensor> tensors;     // held

  size_t phase = 0;
  uint64_t number = 0;     // among the collectives
  bool announced = false;  // its notice is there
  uint64_t waits_for = 0;  // ranks, when last looked at
  absl::Status result;     // this and the next before `done`
  std::chrono::steady_clock::time_point completed_at;
  std::atomic<bool> done{false};
};

class SharedEngine {
 public:
  // `has_helper`: whether there is a thread of the engine's.
  SharedEngine(std::string name, int rank, int size, absl::Duration timeout,
               std::unique_ptr<SharedSegment> segment, std::unique_ptr<LocalLinks> links,
               bool has_helper);
  ~SharedEngine();

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  uint64_t peers() const { return peers_; }  // all other ranks, as bits
  SharedSegment& segment() { return *segment_; }
  // For the operations that are issued here.
  PeerMemory& memory() { return memory_; }
  bool has_helper() const { return has_helper_; }
  bool is_under_way() const { return num_under_way_.load() > 0; }
  std::string Describe(const Operation& op) const {
    return DescribeOperation(name_, rank_, size_, op);
  }

  // Says that this rank is here and waits until every other has said so.
  absl::Status Meet(absl::Time deadline, const Cancelled& cancelled);

  // FAILED_PRECONDITION where the group is broken. `waited_for_at_once` says that Wait() follows,
  // so that no other thread need begin.
  absl::Status Issue(std::shared_ptr<SharedOperation> operation, bool waited_for_at_once = false);
  absl::Status Wait(SharedOperation& operation);

  void SetTimeout(absl::Duration timeout);
  absl::Status status() const;
  // Ends what is under way with `reason`, and tells the peers. Any thread.
  void Break(absl::Status reason);
  // Ends the engine's thread and says that this rank is gone. Idempotent.
  void Leave();

 private:
  using OperationPtr = std::shared_ptr<SharedOperation>;
  using Queue = std::deque<OperationPtr>;

  void Help();
  // Moves what can be moved, once; answers whether anything has. Never waits. `wanted`: what is
  // waited for, or begun; may be null.
  bool Step(const SharedOperation* wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Until the doorbell rings, the next deadline, or it is time to look at the peers.
  void Sleep(uint32_t seen);

  void TakeIssued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  bool StepCollective() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  bool Announce(SharedOperation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  bool CompareNotices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Messages that were handed over do not hold up those behind them.
  bool StepSends(Queue& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // What others bring is left to them while the message that is wanted moves: it is to be in the
  // core's cache when it is looked at.
  bool StepReceives(const SharedOperation* wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Moves an operation's phases along; pops it from `queue` once it is done.
  bool StepFront(Queue& queue, uint64_t readable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void LookAtPeers(bool moved, uint64_t left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void LookAtDeadlines() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void EndAll(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void Finish(SharedOperation& operation, absl::Status result);
  std::vector<Queue*> Queues() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // The operation under way, for messages.
  std::string Current() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void RingPeers() const;
  std::string DescribeRanks(uint64_t ranks, const SharedOperation& operation) const;

  const std::string name_;
  const int rank_;
  const int size_;
  const uint64_t peers_;
  const std::unique_ptr<SharedSegment> segment_;
  const std::unique_ptr<LocalLinks> links_;
  const bool has_helper_;
  RankBlock& own_;
  PeerMemory memory_;  // used with step_mu_

  absl::Mutex step_mu_;
  Queue collectives_ ABSL_GUARDED_BY(step_mu_);
  std::vector<Queue> sends_ ABSL_GUARDED_BY(step_mu_);        // by destination
  std::vector<Queue> receives_ ABSL_GUARDED_BY(step_mu_);     // by source
  std::vector<uint64_t> compared_ ABSL_GUARDED_BY(step_mu_);  // notices of each peer with our own
  uint64_t num_collectives_ ABSL_GUARDED_BY(step_mu_) = 0;
  absl::Time next_look_ ABSL_GUARDED_BY(step_mu_) = absl::InfinitePast();

  std::atomic<int> num_under_way_{0};
  std::atomic<bool> waiter_{false};  // a thread is in Wait(): the engine's stands back
  std::atomic<bool> is_broken_{false};

  mutable absl::Mutex mu_;
  absl::CondVar changed_;  // of what Help() waits for
  std::vector<OperationPtr> issued_ ABSL_GUARDED_BY(mu_);
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread helper_;  // started by the first operation that nobody waits for at once
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHARED_ENGINE_H_
