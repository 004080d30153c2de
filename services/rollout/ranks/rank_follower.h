// RankFollower: a rank of a replica that is not rank 0. It holds its part of the weights and of the
// KV cache, and does what rank 0 orders.
//
//   ASSIGN_OR_RETURN(auto follower, RankFollower::Create(options, model, ranks));
//   ... receive weights into follower->weights(); follower->Commit(version, deadline) ...
//   absl::Status end = follower->Run();   // until rank 0 says stop, or the ranks lose one another
//
// Threads: Run() is the rank's collective thread. Commit() is called by the stager of the weights,
// on another; the rest by any.
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
#include "services/rollout/engine/arena_pair.h"
#include "services/rollout/ranks/rank_group.h"
#include "services/rollout/ranks/step_order.h"
#include "services/rollout/receive/weight_store.h"
#include "services/rollout/runner/model_runner.h"

namespace tandem::rollout {

class RankFollower {
 public:
  // `cache` is that of rank 0, but for its heads. `model`, over the ranks' compute group, and
  // `ranks` outlive the follower.
  static absl::StatusOr<std::unique_ptr<RankFollower>> Create(
      const model::PagedKvCacheOptions& cache, const model::Transformer& model, RankGroup* ranks);

  ArenaPair& weights() { return weights_; }

  // Says that what is staged may become live, and waits until rank 0 has every rank swap. Blocks.
  // DEADLINE_EXCEEDED: it has not, and this rank will not until Commit() is called again.
  // UNAVAILABLE once Run() has ended.
  absl::StatusOr<CommitResult> Commit(int64_t version, absl::Time deadline);

  // Called after each swap.
  void OnCommit(std::function<void(int64_t policy_version)> on_commit) {
    on_commit_ = std::move(on_commit);
  }

  // Called where rank 0 loads the folder's weights again: this rank is to stage them too, on
  // another thread, and to Commit() them.
  void OnReload(std::function<void(int64_t policy_version)> on_reload) {
    on_reload_ = std::move(on_reload);
  }

  // OK where rank 0 has said stop; otherwise why this rank cannot go on, after the moments in which
  // rank 0 finds out who is to blame. On the CPU its steps run in a WorkerPool, pinned to `cpus`.
  absl::Status Run(std::vector<int> cpus = {});

 private:
  // A Commit() that waits.
  enum class Swap { kNone, kOffered, kPinned, kDone };

  RankFollower(const model::Transformer& model, RankGroup* ranks,
               std::unique_ptr<ModelRunner> runner);

  absl::Status Execute(const v1::RankOrder& order);
  absl::Status RunStep(const v1::StepOrder& order);
  absl::Status RunSwap(int64_t version);
  absl::Status RunRelease(const v1::ReleaseOrder& order);
  // OK where every rank can.
  absl::StatusOr<bool> AllCan(const absl::Status& own);

  RankGroup* const ranks_;
  ArenaPair weights_;
  std::unique_ptr<ModelRunner> runner_;
  StepMirror mirror_;
  std::function<void(int64_t)> on_commit_;
  std::function<void(int64_t)> on_reload_;

  absl::Mutex mu_;
  Swap swap_ ABSL_GUARDED_BY(mu_) = Swap::kNone;
  int64_t swap_version_ ABSL_GUARDED_BY(mu_) = -1;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RANKS_RANK_FOLLOWER_H_
