#include "services/rollout/ranks/rank_leader.h"

#include <future>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/ranks/step_order.h"

namespace tandem::rollout {
namespace {

// A rank that fails its liveness check within this is the cause. The others wait for longer before
// they end (rank_follower.h).
constexpr absl::Duration kBlameTimeout = absl::Seconds(2);

// Heartbeats of rank 0 per group timeout. The other ranks wait for an order no longer than the
// timeout; this leaves room for a late heartbeat.
constexpr int kHeartbeatsInTimeout = 5;

}  // namespace

RankLeader::RankLeader(RankGroup* ranks)
    : ranks_(ranks), next_heartbeat_(absl::Now() + ranks->timeout() / kHeartbeatsInTimeout) {}

void RankLeader::SetAddresses(std::vector<std::string> addresses) {
  absl::MutexLock lock(&mu_);
  addresses_ = std::move(addresses);
}

absl::Status RankLeader::Send(v1::RankOrder& order) {
  next_heartbeat_ = absl::Now() + ranks_->timeout() / kHeartbeatsInTimeout;
  return ranks_->Send(order);
}

absl::Status RankLeader::SendHeartbeat() {
  v1::RankOrder order;
  RETURN_IF_ERROR(Send(order));
  // All ranks respond, so a lost rank is noticed before a request needs it.
  return ranks_->Agree(absl::OkStatus()).status();
}

absl::Status RankLeader::Step(absl::Span<const RunItem> items, const CacheCopies& copies,
                              const CacheLayout& cache) {
  v1::RankOrder order;
  WriteStep(items, copies, cache, *order.mutable_step());
  return Send(order);
}

absl::StatusOr<absl::Status> RankLeader::Swap(int64_t policy_version) {
  v1::RankOrder order;
  order.mutable_swap()->set_policy_version(policy_version);
  RETURN_IF_ERROR(Send(order));
  ASSIGN_OR_RETURN(const std::vector<absl::Status> answers, ranks_->Agree(absl::OkStatus()));
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].ok()) continue;
    return absl::Status(answers[rank].code(),
                        absl::StrCat("rank ", rank, ": ", answers[rank].message()));
  }
  return absl::OkStatus();
}

absl::Status RankLeader::Release(bool kv_cache, bool weights) {
  v1::RankOrder order;
  order.mutable_release()->set_kv_cache(kv_cache);
  order.mutable_release()->set_weights(weights);
  RETURN_IF_ERROR(Send(order));
  return ranks_->Agree(absl::OkStatus()).status();
}

absl::Status RankLeader::Reload(int64_t policy_version) {
  v1::RankOrder order;
  order.mutable_reload()->set_policy_version(policy_version);
  RETURN_IF_ERROR(Send(order));
  return ranks_->Agree(absl::OkStatus()).status();
}

void RankLeader::Stop() {
  if (!ranks_->status().ok()) return;
  v1::RankOrder order;
  order.mutable_stop();
  Send(order).IgnoreError();
}

absl::Status RankLeader::Explain(const absl::Status& error) {
  ranks_->Abort(error.message());
  std::vector<std::string> addresses;
  {
    absl::MutexLock lock(&mu_);
    addresses = addresses_;
  }
  std::vector<std::future<absl::Status>> answers;
  for (const std::string& address : addresses) {
    // All at once, so that the answer takes one kBlameTimeout, however many ranks there are.
    answers.push_back(std::async(std::launch::async, [address] {
      return rpc::IsServing(rpc::MakeChannel(address), "", kBlameTimeout).status();
    }));
  }
  std::vector<std::string> silent;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].get().ok())
      silent.push_back(absl::StrCat("rank ", i + 1, " (", addresses[i], ")"));
  }
  const std::string who =
      silent.empty() ? "its ranks lost contact"
                     : absl::StrCat(absl::StrJoin(silent, " and "),
                                    silent.size() == 1 ? " does not respond" : " do not respond");
  return rpc::WithReason(
      absl::UnavailableError(absl::StrCat("the replica of ", ranks_->size(),
                                          " tensor-parallel ranks cannot continue: ", who,
                                          "; restart its ranks; ", error.message())),
      "RANK_LOST", {{"ranks", absl::StrJoin(silent, ", ")}});
}

}  // namespace tandem::rollout
