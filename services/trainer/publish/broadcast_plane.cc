#include "services/trainer/publish/broadcast_plane.h"

#include <utility>

#include "common/status/status_macros.h"

namespace tandem::trainer {

BroadcastPlane::BroadcastPlane(const weights::TransferPlan& plan, ShardGatherSource* source,
                               absl::Duration group_timeout)
    : plan_(plan),
      source_(source),
      group_timeout_(group_timeout),
      table_{plan.manifest, plan.buckets},
      transport_(source->ops()) {}

absl::Status BroadcastPlane::Order(const SendOrder& order) {
  source_->Begin(order.deadline, group_timeout_);
  return absl::OkStatus();
}

absl::StatusOr<SendResult> BroadcastPlane::Send(comm::ProcessGroup& group, const SendOrder&,
                                                weights::PhaseTimes& times) {
  SendResult result;
  ASSIGN_OR_RETURN(result.digests, transport_.Send(plan_, group, *source_, times));
  const auto wait_start = weights::PhaseTimes::Clock::now();
  RETURN_IF_ERROR(source_->CheckGathered(result.digests));
  times.Worked("gather", wait_start);
  // What the leader puts on its wire is counted once, however the collective spreads it.
  result.sent_bytes = result.max_rank_sent_bytes = plan_.total_bytes;
  return result;
}

}  // namespace tandem::trainer
