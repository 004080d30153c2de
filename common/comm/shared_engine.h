// SharedEngine: executes the operations of one rank of a shared-memory group: collectives in issue
// order, and independently of them each pair's messages in issue order.
//
// Threads: a thread in Wait() does the work while it waits; otherwise the engine's helper thread
// does, so that operations progress while the rank computes. Both sleep on the rank's doorbell when
// nothing can move. An engine without a helper moves messages when they are issued and during
// Wait(), so that the thread that reads them finds them in its cache.
//
// A collective's data is used only after the ranks' notices of it match: if one rank issues
// all_gather 'layers.3' and another broadcast 'layers.3', the error names both.
//
// Locks: step_mu_ before mu_. step_mu_ is held while work is done, mu_ only briefly.
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

// An operation and its progress. The group creates it; the engine owns it until it is done.
struct SharedOperation {
  enum class Stream { kCollective, kSend, kReceive };

  Operation what;
  Stream stream = Stream::kCollective;
  Notice notice;               // collectives only
  uint64_t awaited_peers = 0;  // bit mask: peers whose notices must arrive before it is done
  std::vector<SharedTransfer> phases;  // run one after another
  std::vector<at::Tensor> tensors;     // kept alive until it is done

  size_t phase = 0;
  uint64_t number = 0;     // index among the collectives
  bool announced = false;  // its notice is published
  uint64_t waits_for = 0;  // bit mask of ranks, as of the last step
  absl::Status result;     // this and the next are set before `done`
  std::chrono::steady_clock::time_point completed_at;
  std::atomic<bool> done{false};
};

class SharedEngine {
 public:
  // `has_helper`: whether the engine has its own thread.
  SharedEngine(std::string name, int rank, int size, absl::Duration timeout,
               std::unique_ptr<SharedSegment> segment, std::unique_ptr<LocalLinks> links,
               bool has_helper);
  ~SharedEngine();

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  uint64_t peers() const { return peers_; }  // bit mask of all other ranks
  SharedSegment& segment() { return *segment_; }
  // For the operations issued to this engine.
  PeerMemory& memory() { return memory_; }
  bool has_helper() const { return has_helper_; }
  bool is_under_way() const { return num_under_way_.load() > 0; }
  std::string Describe(const Operation& op) const {
    return DescribeOperation(name_, rank_, size_, op);
  }

  // Announces this rank and waits until every other rank has done so.
  absl::Status Meet(absl::Time deadline, const Cancelled& cancelled);

  // FAILED_PRECONDITION if the group is broken. `waited_for_at_once`: the caller calls Wait() next,
  // so the helper need not start.
  absl::Status Issue(std::shared_ptr<SharedOperation> operation, bool waited_for_at_once = false);
  absl::Status Wait(SharedOperation& operation);

  void SetTimeout(absl::Duration timeout);
  absl::Status status() const;
  // Fails all operations in flight with `reason` and notifies the peers. Any thread.
  void Break(absl::Status reason);
  // Ends the helper thread and announces that this rank has left. Idempotent.
  void Leave();

 private:
  using OperationPtr = std::shared_ptr<SharedOperation>;
  using Queue = std::deque<OperationPtr>;

  void Help();
  // Moves what can move now, once; returns whether anything moved. Never blocks. `wanted`: the
  // operation being waited for or just issued; may be null.
  bool Step(const SharedOperation* wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Sleeps until the doorbell rings, the next deadline, or the next check of the peers.
  void Sleep(uint32_t seen);

  void TakeIssued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  bool StepCollective() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  bool Announce(SharedOperation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  bool CompareNotices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Messages already handed over do not block those behind them.
  bool StepSends(Queue& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Other peers' messages wait while the wanted one moves, so that it stays in the core's cache
  // until the caller reads it.
  bool StepReceives(const SharedOperation* wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Moves an operation's phases along; pops it from `queue` once it is done.
  bool StepFront(Queue& queue, uint64_t readable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void LookAtPeers(bool moved, uint64_t left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void LookAtDeadlines() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void EndAll(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void Finish(SharedOperation& operation, absl::Status result);
  std::vector<Queue*> Queues() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  // Describes the operation in flight, for error messages.
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
  PeerMemory memory_;  // used under step_mu_

  absl::Mutex step_mu_;
  Queue collectives_ ABSL_GUARDED_BY(step_mu_);
  std::vector<Queue> sends_ ABSL_GUARDED_BY(step_mu_);        // by destination
  std::vector<Queue> receives_ ABSL_GUARDED_BY(step_mu_);     // by source
  std::vector<uint64_t> compared_ ABSL_GUARDED_BY(step_mu_);  // by peer: notices compared to ours
  uint64_t num_collectives_ ABSL_GUARDED_BY(step_mu_) = 0;
  absl::Time next_look_ ABSL_GUARDED_BY(step_mu_) = absl::InfinitePast();

  std::atomic<int> num_under_way_{0};
  std::atomic<bool> waiter_{false};  // a thread is in Wait(): the helper pauses
  std::atomic<bool> is_broken_{false};

  mutable absl::Mutex mu_;
  absl::CondVar changed_;  // wakes Help()
  std::vector<OperationPtr> issued_ ABSL_GUARDED_BY(mu_);
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread helper_;  // started by the first operation without `waited_for_at_once`
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHARED_ENGINE_H_
