#include "services/rollout/ranks/rank_follower.h"

#include <ATen/Parallel.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/worker_pool.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::rollout {
namespace {

// Longer than rank 0's liveness check (rank_leader.cc): a rank that ended at once would be taken
// for the one that was lost.
constexpr absl::Duration kLinger = absl::Seconds(4);

}  // namespace

absl::StatusOr<std::unique_ptr<RankFollower>> RankFollower::Create(
    const model::PagedKvCacheOptions& cache, const model::Transformer& model, RankGroup* ranks,
    at::Device staged_on) {
  ASSIGN_OR_RETURN(auto runner, ModelRunner::Create(model, cache));
  return std::unique_ptr<RankFollower>(
      new RankFollower(model, ranks, std::move(runner), staged_on));
}

RankFollower::RankFollower(const model::Transformer& model, RankGroup* ranks,
                           std::unique_ptr<ModelRunner> runner, at::Device staged_on)
    : ranks_(ranks),
      rows_{model.spec().image_row_size(), runner->cache().options().dtype},
      weights_(model.table(), runner->cache().options().dtype, runner->cache().options().device,
               staged_on),
      runner_(std::move(runner)) {}

absl::StatusOr<CommitResult> RankFollower::Commit(int64_t version, absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  swap_ = Swap::kOffered;
  swap_version_ = version;
  const auto done = [this] {
    mu_.AssertHeld();
    return swap_ == Swap::kDone || is_over_;
  };
  const auto decided = [this] {
    mu_.AssertHeld();
    return swap_ != Swap::kPinned || is_over_;
  };
  mu_.AwaitWithDeadline(absl::Condition(&done), deadline);
  // Waits for an agreement in progress, which ends with the group's timeout.
  mu_.Await(absl::Condition(&decided));
  const bool swapped = swap_ == Swap::kDone;
  swap_ = Swap::kNone;
  if (swapped) return CommitResult{};
  if (is_over_) {
    return absl::UnavailableError(
        absl::StrCat("version ", version, " was not committed: the rank left its replica"));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "version ", version, " was not committed: rank 0 of the replica did not swap in time"));
}

absl::Status RankFollower::Run(std::vector<int> cpus) {
  std::optional<model::WorkerPool> pool;
  if (runner_->cache().options().device.is_cpu()) {
    pool.emplace(at::get_num_threads(), std::move(cpus));
  }
  const model::UseWorkerPool use(pool.has_value() ? &*pool : nullptr);
  absl::Status status;
  v1::RankOrder order;
  while (status.ok() && !order.has_stop()) {
    status = ranks_->Receive(order);
    if (status.ok() && !order.has_stop()) status = Execute(order);
  }
  {
    absl::MutexLock lock(&mu_);
    is_over_ = true;
  }
  if (status.ok()) return status;
  ranks_->Abort(status.message());
  telemetry::LogError("the replica's ranks lost contact",
                      {{"rank", ranks_->rank()}, {"error", status.ToString()}});
  absl::SleepFor(kLinger);
  return status;
}

absl::Status RankFollower::Execute(const v1::RankOrder& order) {
  switch (order.order_case()) {
    case v1::RankOrder::kStep:
      return RunStep(order.step());
    case v1::RankOrder::kSwap:
      return RunSwap(order.swap().policy_version());
    case v1::RankOrder::kRelease:
      return RunRelease(order.release());
    case v1::RankOrder::kReload:
      if (on_reload_) on_reload_(order.reload().policy_version());
      break;
    case v1::RankOrder::kStop:
    case v1::RankOrder::ORDER_NOT_SET:
      break;
  }
  return ranks_->Agree(absl::OkStatus()).status();
}

absl::Status RankFollower::RunStep(const v1::StepOrder& order) {
  RETURN_IF_ERROR(mirror_.Read(order, LayoutOf(runner_->cache()), rows_));
  const model::ParameterProvider* const live = weights_.live_parameters();
  if (live == nullptr)
    return absl::InternalError("rank 0 ordered a step, but no weights are live on this rank");
  return runner_->Run(*live, mirror_.items(), mirror_.copies()).status();
}

absl::StatusOr<bool> RankFollower::AllCan(const absl::Status& own) {
  ASSIGN_OR_RETURN(const std::vector<absl::Status> answers, ranks_->Agree(own));
  for (const absl::Status& answer : answers) {
    if (!answer.ok()) return false;
  }
  return true;
}

absl::Status RankFollower::RunSwap(int64_t version) {
  absl::Status own;
  {
    absl::MutexLock lock(&mu_);
    if (swap_ == Swap::kOffered && swap_version_ == version) {
      // From here on Commit() may not give up at its deadline: the other ranks may swap.
      swap_ = Swap::kPinned;
    } else {
      own = absl::FailedPreconditionError(
          absl::StrCat("version ", version, " is not yet committed on this rank by the trainer"));
    }
  }
  const absl::StatusOr<bool> all = AllCan(own);
  bool swaps = all.ok() && *all;
  // If the device fails here this rank is lost, because the others have the new weights.
  const absl::Status loaded = swaps ? weights_.Load() : absl::OkStatus();
  swaps = swaps && loaded.ok();
  if (swaps) {
    weights_.Flip(version);
    telemetry::SetLogPolicyVersion(version);
  }
  absl::MutexLock lock(&mu_);
  if (swap_ == Swap::kPinned) swap_ = swaps ? Swap::kDone : Swap::kOffered;
  return all.ok() ? loaded : all.status();
}

absl::Status RankFollower::RunRelease(const v1::ReleaseOrder& order) {
  if (order.kv_cache()) runner_->ReleaseCache();
  if (order.weights()) {
    weights_.Release();
    runner_->ReleaseUnused();
  }
  return ranks_->Agree(absl::OkStatus()).status();
}

}  // namespace tandem::rollout
