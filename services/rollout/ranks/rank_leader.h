// RankLeader: how rank 0's engine has the other ranks of its replica do what it does.
//
//   RETURN_IF_ERROR(leader.Step(items, copies));      // then the runner computes the same here
//   ASSIGN_OR_RETURN(const absl::Status can, leader.Swap(version));
//   if (can.ok()) ... every rank has swapped, this one does too
//   if (absl::Now() >= leader.next_heartbeat()) RETURN_IF_ERROR(leader.SendHeartbeat());
//
// After an error of the ranks (not of what they agree on) the replica cannot go on: Explain() finds
// out who is to blame. Threads: the engine thread, but SetAddresses().
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
#include "services/rollout/runner/model_runner.h"

namespace tandem::rollout {

class RankLeader {
 public:
  // `ranks` outlives the leader.
  explicit RankLeader(RankGroup* ranks);

  // HOST:PORT of the other ranks, rank 1 first: where they are asked whether they live.
  void SetAddresses(std::vector<std::string> addresses);

  int size() const { return ranks_->size(); }

  absl::Status Step(absl::Span<const RunItem> items,
                    absl::Span<const std::pair<int32_t, int32_t>> block_copies, int64_t block_size);

  // Whether every rank could swap, and then has: OK, or the first rank that cannot, and why. An
  // error of the call itself is one of the ranks.
  absl::StatusOr<absl::Status> Swap(int64_t policy_version);

  // Returns when every other rank has.
  absl::Status Release(bool kv_cache, bool weights);

  // Has the other ranks stage the folder's weights, to be swapped.
  absl::Status Reload(int64_t policy_version);

  // Says that this rank is there, which must not be left out for long.
  absl::Status SendHeartbeat();
  absl::Time next_heartbeat() const { return next_heartbeat_; }

  // Ends the other ranks. As far as they still listen.
  void Stop();

  // UNAVAILABLE that names the ranks that do not answer, in a few seconds at most. Breaks the group
  // first, so that ranks that wait for another one say so.
  absl::Status Explain(const absl::Status& error);
  // OK, or why the group is broken.
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
