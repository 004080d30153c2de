// RankFollower: a replica's rank other than 0. It holds its part of the weights and of the KV
// cache, and executes rank 0's orders.
//
//   ASSIGN_OR_RETURN(auto follower, RankFollower::Create(options, model, ranks));
//   absl::Status end = follower->Run();   // until rank 0 stops it, or the ranks lose one another
//
// Another thread, once it has received weights into follower->weights():
//
//   ASSIGN_OR_RETURN(CommitResult commit, follower->Commit(version, deadline));
//
// Threads: Run() is the rank's collective thread. The weights' stager calls Commit() on another
// thread; the other methods are for any thread.
#ifndef TANDEM_SERVICES_ROLLOUT_RANKS_RANK_FOLLOWER_H_
#define TANDEM_SERVICES_ROLLOUT_RANKS_RANK_FOLLOWER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/model/transformer.h"
#include "services/rollout/ranks/rank_group.h"
#include "services/rollout/ranks/step_order.h"
#include "services/rollout/receive/arena_pair.h"
#include "services/rollout/receive/weight_store.h"
#include "services/rollout/runner/model_runner.h"

namespace tandem::rollout {

class RankFollower {
 public:
  // `cache`: rank 0's, except for the heads. `model`, over the ranks' compute group, and `ranks`
  // must outlive the follower. `staged_on`: where weights are received, the cache's device or the
  // CPU.
  static absl::StatusOr<std::unique_ptr<RankFollower>> Create(
      const model::PagedKvCacheOptions& cache, const model::Transformer& model, RankGroup* ranks,
      at::Device staged_on = at::kCPU);

  ArenaPair& weights() { return weights_; }

  // Offers the staged weights for a swap and blocks until rank 0 makes every rank swap.
  // DEADLINE_EXCEEDED: no swap happened, nor will one until Commit() is called again. UNAVAILABLE
  // once Run() has ended.
  absl::StatusOr<CommitResult> Commit(int64_t version, absl::Time deadline);

  // Sets a callback for when rank 0 reloads the folder's weights: this rank must stage them too, on
  // another thread, and Commit() them.
  void OnReload(std::function<void(int64_t policy_version)> on_reload) {
    on_reload_ = std::move(on_reload);
  }

  // Runs until rank 0 sends stop (returns OK) or the rank fails (returns the cause, after giving
  // rank 0 a moment to find the failed rank). On the CPU its steps run in a WorkerPool, pinned to
  // `cpus`.
  absl::Status Run(std::vector<int> cpus = {});

 private:
  // State of a waiting Commit().
  enum class Swap { kNone, kOffered, kPinned, kDone };

  RankFollower(const model::Transformer& model, RankGroup* ranks,
               std::unique_ptr<ModelRunner> runner, at::Device staged_on);

  absl::Status Execute(const v1::RankOrder& order);
  absl::Status RunStep(const v1::StepOrder& order);
  absl::Status RunSwap(int64_t version);
  absl::Status RunRelease(const v1::ReleaseOrder& order);
  // True if every rank can.
  absl::StatusOr<bool> AllCan(const absl::Status& own);

  RankGroup* const ranks_;
  const RowLayout rows_;
  ArenaPair weights_;
  std::unique_ptr<ModelRunner> runner_;
  StepMirror mirror_;
  std::function<void(int64_t)> on_reload_;

  absl::Mutex mu_;
  Swap swap_ ABSL_GUARDED_BY(mu_) = Swap::kNone;
  int64_t swap_version_ ABSL_GUARDED_BY(mu_) = -1;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RANKS_RANK_FOLLOWER_H_
