// RankLeader: through it rank 0's engine makes the replica's other ranks mirror its work.
//
//   RETURN_IF_ERROR(leader.Step(items, copies, LayoutOf(cache)));  // then run it here too
//   ASSIGN_OR_RETURN(const absl::Status can, leader.Swap(version));
//   if (can.ok()) Swap();   // every other rank has swapped
//   if (absl::Now() >= leader.next_heartbeat()) {
//     RETURN_IF_ERROR(leader.SendHeartbeat());
//   }
//
// After an error of the ranks (not of what they agree on) the replica cannot continue: Explain()
// finds the ranks that failed. Threads: the engine thread, except SetAddresses().
#ifndef TANDEM_SERVICES_ROLLOUT_RANKS_RANK_LEADER_H_
#define TANDEM_SERVICES_ROLLOUT_RANKS_RANK_LEADER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "services/rollout/ranks/rank_group.h"
#include "services/rollout/ranks/step_order.h"
#include "services/rollout/runner/model_runner.h"

namespace tandem::rollout {

class RankLeader {
 public:
  // `ranks` must outlive the leader.
  explicit RankLeader(RankGroup* ranks);

  // HOST:PORT of the other ranks, rank 1 first, for liveness checks.
  void SetAddresses(std::vector<std::string> addresses);

  int size() const { return ranks_->size(); }

  absl::Status Step(absl::Span<const RunItem> items, const CacheCopies& copies,
                    const CacheLayout& cache);

  // Swaps if every rank can. The inner status is OK, or the first rank that cannot, and why; the
  // outer one is an error of the ranks.
  absl::StatusOr<absl::Status> Swap(int64_t policy_version);

  // Blocks until every other rank has released its memory.
  absl::Status Release(bool kv_cache, bool weights);

  // Makes the other ranks stage the folder's weights for a swap.
  absl::Status Reload(int64_t policy_version);

  // Sends a heartbeat; required by next_heartbeat().
  absl::Status SendHeartbeat();
  absl::Time next_heartbeat() const { return next_heartbeat_; }

  // Stops the other ranks, as far as they can be reached.
  void Stop();

  // Returns UNAVAILABLE, naming the ranks that do not respond, within a few seconds. Breaks the
  // group first, so that ranks that wait for another one report it.
  absl::Status Explain(const absl::Status& error);
  // OK, or the reason that the group is broken.
  absl::Status status() const { return ranks_->status(); }

 private:
  absl::Status Send(v1::RankOrder& order);

  RankGroup* const ranks_;
  absl::Time next_heartbeat_;
  absl::Mutex mu_;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RANKS_RANK_LEADER_H_
