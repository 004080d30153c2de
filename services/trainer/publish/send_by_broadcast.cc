#include "services/trainer/publish/send_by_broadcast.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/broadcast_part.h"

namespace tandem::trainer {

SendByBroadcast::SendByBroadcast(RolloutLayouts rollout, ShardGatherSource* source,
                                 absl::Duration group_timeout)
    : rollout_(std::move(rollout)),
      source_(source),
      group_timeout_(group_timeout),
      buckets_(source->ops()) {}

absl::StatusOr<std::vector<ReplicaTables>> SendByBroadcast::TablesFor(
    const std::vector<int>& replica_ranks, bool keeps_frozen) {
  const weights::TransferPlan& plan = source_->PlanOf(keeps_frozen);
  std::vector<ReplicaTables> out;
  for (const int num_ranks : replica_ranks) {
    ReplicaTables& known = tables_[{num_ranks, keeps_frozen}];
    if (known.ranks == nullptr) {
      ASSIGN_OR_RETURN(const weights::ModelLayout rollout, rollout_(num_ranks));
      ASSIGN_OR_RETURN(std::vector<weights::Manifest> manifests,
                       PartManifests(plan.manifest, rollout));
      auto ranks = std::make_shared<std::vector<RankTable>>();
      for (int rank = 0; rank < num_ranks; ++rank) {
        ASSIGN_OR_RETURN(std::vector<weights::Bucket> buckets,
                         weights::BucketsOfPart(plan, rollout, rank));
        ranks->push_back({std::move(manifests[rank]), std::move(buckets)});
      }
      known.id = absl::StrCat(keeps_frozen ? "trainable " : "", "broadcast to ", num_ranks);
      known.ranks = std::move(ranks);
    }
    out.push_back(known);
  }
  return out;
}

absl::Status SendByBroadcast::Order(const SendOrder& order) {
  source_->Begin(order.deadline, group_timeout_);
  return absl::OkStatus();
}

absl::StatusOr<SendResult> SendByBroadcast::Send(comm::ProcessGroup& group, const SendOrder& order,
                                                 weights::PhaseTimes& times) {
  RETURN_IF_ERROR(source_->Choose(order.keeps_frozen));
  const weights::TransferPlan& plan = source_->PlanOf(order.keeps_frozen);
  SendResult result;
  ASSIGN_OR_RETURN(result.digests, buckets_.Send(plan, group, *source_, times));
  const auto wait_start = weights::PhaseTimes::Clock::now();
  RETURN_IF_ERROR(source_->CheckGathered(result.digests));
  times.Worked("gather", wait_start);
  // Counts the leader's bytes once, however the collective spreads them.
  result.sent_bytes = result.max_rank_sent_bytes = plan.BroughtBytes();
  return result;
}

}  // namespace tandem::trainer
