#include "services/trainer/publish/send_by_broadcast.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/weights/broadcast_part.h"

namespace tandem::trainer {
namespace {

std::vector<int> SizesOf(const std::vector<int>& fleet) {
  const std::set<int> sizes(fleet.begin(), fleet.end());
  return {sizes.begin(), sizes.end()};
}

}  // namespace

SendByBroadcast::SendByBroadcast(RolloutLayouts rollout, ShardGatherSource* source,
                                 absl::Duration group_timeout)
    : rollout_(std::move(rollout)),
      source_(source),
      group_timeout_(group_timeout),
      buckets_(source->ops()) {}

absl::StatusOr<const SendByBroadcast::Share*> SendByBroadcast::ShareOf(
    int num_ranks, const std::vector<int>& sizes, bool keeps_frozen) {
  const std::string id =
      absl::StrCat(keeps_frozen ? "trainable " : "", "broadcast to ", num_ranks,
                   sizes.size() > 1 ? absl::StrCat(" of ", absl::StrJoin(sizes, ", ")) : "");
  if (const auto known = shares_.find(id); known != shares_.end()) return &known->second;
  const weights::TransferPlan& plan = source_->PlanOf(keeps_frozen);
  std::vector<weights::ModelLayout> layouts;
  for (const int size : sizes) {
    ASSIGN_OR_RETURN(layouts.emplace_back(), rollout_(size));
  }
  std::vector<const weights::ModelLayout*> pointers;
  for (const weights::ModelLayout& layout : layouts) pointers.push_back(&layout);
  const std::vector<bool> to_all = weights::HeldByAll(pointers);
  const weights::ModelLayout& rollout =
      layouts[std::find(sizes.begin(), sizes.end(), num_ranks) - sizes.begin()];
  ASSIGN_OR_RETURN(std::vector<weights::Manifest> manifests, PartManifests(plan.manifest, rollout));
  Share share;
  auto ranks = std::make_shared<std::vector<RankTable>>();
  for (int rank = 0; rank < num_ranks; ++rank) {
    ASSIGN_OR_RETURN(weights::RankShare one, weights::ShareOfRank(plan, to_all, rollout, rank));
    ranks->push_back({std::move(manifests[rank]), std::move(one.buckets)});
    share.parts.push_back(
        std::make_shared<const std::vector<weights::BucketCut>>(std::move(one.part)));
    if (rank > 0) continue;  // the same for every rank
    share.all = std::make_shared<const std::vector<weights::BucketCut>>(std::move(one.all));
  }
  share.tables.id = id;
  share.tables.ranks = std::move(ranks);
  return &(shares_[id] = std::move(share));
}

absl::StatusOr<std::vector<ReplicaTables>> SendByBroadcast::TablesFor(
    const std::vector<int>& replica_ranks, bool keeps_frozen) {
  const std::vector<int> sizes = SizesOf(replica_ranks);
  std::vector<ReplicaTables> out;
  for (const int num_ranks : replica_ranks) {
    ASSIGN_OR_RETURN(const Share* const share, ShareOf(num_ranks, sizes, keeps_frozen));
    out.push_back(share->tables);
  }
  return out;
}

absl::StatusOr<std::optional<weights::BroadcastSplit>> SendByBroadcast::SplitFor(
    const std::vector<int>& fleet, bool keeps_frozen) {
  const std::vector<int> sizes = SizesOf(fleet);
  if (sizes == std::vector<int>{1}) return std::nullopt;
  const std::vector<int> first = StarRoute::FirstRanks(fleet);
  weights::BroadcastSplit split;
  for (const int size : sizes) {
    ASSIGN_OR_RETURN(const Share* const share, ShareOf(size, sizes, keeps_frozen));
    split.all = share->all;
    const int to = first[std::find(fleet.begin(), fleet.end(), size) - fleet.begin()];
    for (int rank = 0; rank < size; ++rank) split.parts.push_back({to + rank, share->parts[rank]});
  }
  return split;
}

absl::Status SendByBroadcast::Order(const SendOrder& order) {
  source_->Begin(order.deadline, group_timeout_);
  return absl::OkStatus();
}

absl::StatusOr<SendResult> SendByBroadcast::Send(comm::ProcessGroup& group, const SendOrder& order,
                                                 weights::PhaseTimes& times) {
  RETURN_IF_ERROR(source_->Choose(order.keeps_frozen));
  const weights::TransferPlan& plan = source_->PlanOf(order.keeps_frozen);
  ASSIGN_OR_RETURN(const std::optional<weights::BroadcastSplit> split,
                   SplitFor(order.fleet, order.keeps_frozen));
  SendResult result;
  ASSIGN_OR_RETURN(result.digests, buckets_.Send(plan, group, *source_, times,
                                                 split.has_value() ? &*split : nullptr));
  const auto wait_start = weights::PhaseTimes::Clock::now();
  RETURN_IF_ERROR(source_->CheckGathered(result.digests));
  times.Worked("gather", wait_start);
  // Counts what goes to all ranks once, however the collective spreads it.
  result.sent_bytes = result.max_rank_sent_bytes =
      split.has_value() ? split->SentBytes() : plan.BroughtBytes();
  return result;
}

}  // namespace tandem::trainer
