// The engine thread makes a weight update live: it waits for the right moment, agrees with the
// other ranks of the replica, if there are any, and flips the arenas between two steps.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/telemetry/trace.h"
#include "services/rollout/engine/engine.h"

namespace tandem::rollout {
namespace {

// How long to wait before asking ranks again that cannot swap yet: the trainer's calls reach all
// ranks at nearly the same time.
constexpr absl::Duration kSwapPause = absl::Milliseconds(5);

}  // namespace

struct Engine::Swap {
  Swap(int64_t v, int64_t i) : version(v), incarnation(i) {}
  const int64_t version;
  const int64_t incarnation;
  absl::Mutex mu;
  bool given_up ABSL_GUARDED_BY(mu) = false;
  bool done ABSL_GUARDED_BY(mu) = false;
  absl::StatusOr<CommitResult> result ABSL_GUARDED_BY(mu) = CommitResult();
};

absl::StatusOr<CommitResult> Engine::Commit(int64_t version, absl::Time deadline,
                                            int64_t incarnation) {
  auto swap = std::make_shared<Swap>(version, incarnation);
  Post([this, swap] {
    // A paused engine would wait for ever: there the requests are kept.
    if (options_.in_flight == InFlightPolicy::kWait && !paused_ && !requests_.empty()) {
      when_idle_.push_back([this, swap] { BeginSwap(swap); });
    } else {
      BeginSwap(swap);
    }
  });
  absl::MutexLock lock(&swap->mu);
  if (!swap->mu.AwaitWithDeadline(absl::Condition(&swap->done), deadline)) {
    swap->given_up = true;
    return absl::DeadlineExceededError(absl::StrCat(
        "version ", version, " was not committed: ",
        options_.ranks != nullptr ? "not every rank of the replica could swap, or " : "",
        "the engine did not finish its step",
        options_.in_flight == InFlightPolicy::kWait ? " or its requests" : "", " in time"));
  }
  return swap->result;
}

void Engine::BeginSwap(std::shared_ptr<Swap> swap) {
  swap_ = std::move(swap);
  next_try_ = absl::InfinitePast();
  TrySwap();
}

void Engine::TrySwap() {
  const std::shared_ptr<Swap> swap = swap_;
  absl::Status lost = lost_;
  {
    // Hold the lock until the outcome is known, so that the waiter cannot time out while the ranks
    // agree.
    absl::MutexLock lock(&swap->mu);
    if (swap->given_up) {
      swap_ = nullptr;
      return;
    }
    const absl::Time start = absl::Now();
    bool every_rank_can = true;
    if (options_.ranks != nullptr && lost.ok()) {
      const absl::StatusOr<absl::Status> answer = options_.ranks->Swap(swap->version);
      lost = answer.status();
      every_rank_can = answer.ok() && answer->ok();
    }
    if (lost.ok() && !every_rank_can) {
      next_try_ = absl::Now() + kSwapPause;
      return;
    }
    swap_ = nullptr;
    if (lost.ok()) {
      CommitResult result;
      const absl::Status flipped = FlipWeights(swap->version, swap->incarnation, result);
      result.pause_seconds = absl::ToDoubleSeconds(absl::Now() - start);
      swap->result = result;
      if (!flipped.ok()) swap->result = flipped;
    } else {
      swap->result = lost;
    }
    UpdateInfo();  // first: the woken caller may query or submit at once
    swap->done = true;
  }
  if (!lost.ok()) LoseRanks(lost);
}

absl::Status Engine::FlipWeights(int64_t version, int64_t incarnation, CommitResult& result) {
  const telemetry::ScopedSpan span("flip weights", {{"policy_version", version}});
  // Rows of images stay if the same tower would make them: a frozen one. A comparison reads the tower
  // twice; encoding the images of the requests in flight again costs many times that.
  const bool has_rows = encoder_.has_value() && encoder_->stats().row_bytes > 0;
  const bool keeps_rows = has_rows && weights_.StagedEqualsLive(tower_);
  if (absl::Status loaded = weights_.Load(); !loaded.ok()) {
    live_ = nullptr;
    return loaded;
  }
  const std::vector<ActiveRequest*> begun = BegunRequests();
  switch (options_.in_flight) {
    case InFlightPolicy::kAbort:
      for (ActiveRequest* request : begun) AbortRequest(*request);
      result.num_aborted_requests = static_cast<int64_t>(begun.size());
      break;
    case InFlightPolicy::kWait:
    case InFlightPolicy::kKeepRecompute:
      scheduler_.RecomputeAll();
      result.num_recomputed_requests = static_cast<int64_t>(begun.size());
      break;
    case InFlightPolicy::kKeepKv:
      for (Sequence* sequence : scheduler_.running()) sequence->may_publish = false;
      break;
  }
  RestartScores();
  // A version that is repaired, or comes again from another trainer, gives its blocks other hashes:
  // the blocks in the prefix cache were computed with other weights.
  num_repairs_ = version == version_ ? num_repairs_ + 1 : 0;
  if (has_rows && !keeps_rows) encoder_->Clear();
  weights_.Flip(version);
  live_ = weights_.live_parameters();
  version_ = version;
  incarnation_ = incarnation;
  released_.weights = false;
  SetCacheRoot();
  telemetry::SetLogPolicyVersion(version);
  if (options_.on_commit) options_.on_commit(version);
  return absl::OkStatus();
}

void Engine::SetCacheRoot() {
  // Two trainers may use the same version number.
  std::string salt = absl::StrCat("trainer ", incarnation_, " ");
  if (num_repairs_ > 0) absl::StrAppend(&salt, "repair ", num_repairs_);
  if (num_releases_ > 0) absl::StrAppend(&salt, " release ", num_releases_);
  blocks_.SetRoot(RootHash(options_.model_name, version_, salt));
}

}  // namespace tandem::rollout
