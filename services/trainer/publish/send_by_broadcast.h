// SendByBroadcast: the leader gathers the shards bucket by bucket. What all ranks of all replicas
// hold it broadcasts to them; each rank's part of the rest it sends to that rank of the first
// replica of each size, which passes it on (broadcast_part.h, StarRoute).
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_SEND_BY_BROADCAST_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_SEND_BY_BROADCAST_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/weights/broadcast_transport.h"
#include "services/trainer/publish/fleet_tables.h"
#include "services/trainer/publish/send_transport.h"
#include "services/trainer/publish/shard_gather_source.h"

namespace tandem::trainer {

// The other ranks call source->Follow() meanwhile. The source outlives it. `group_timeout` is the
// timeout of the source's group between updates.
class SendByBroadcast : public SendTransport {
 public:
  SendByBroadcast(RolloutLayouts rollout, ShardGatherSource* source, absl::Duration group_timeout);

  const GroupRoute& route() const override { return route_; }
  bool sends_deltas() const override { return false; }
  bool can_keep_frozen() const override { return source_->has_frozen(); }
  bool replicas_stream() const override { return false; }
  absl::Status CheckReplica(int num_ranks) override { return rollout_(num_ranks).status(); }
  absl::StatusOr<std::vector<ReplicaTables>> TablesFor(const std::vector<int>& replica_ranks,
                                                       bool keeps_frozen) override;
  int64_t model_bytes() const override { return source_->PlanOf(false).total_bytes; }
  void Begin(absl::Time deadline) override { source_->Begin(deadline, group_timeout_); }
  absl::Status Order(const SendOrder& order) override;
  absl::StatusOr<SendResult> Send(comm::ProcessGroup& group, const SendOrder& order,
                                  weights::PhaseTimes& times) override;
  absl::Status Drain() override { return source_->Drain(); }
  absl::Status End() override { return source_->End(); }

 private:
  const RolloutLayouts rollout_;
  ShardGatherSource* const source_;
  const absl::Duration group_timeout_;
  // What the replicas of one size receive, in a fleet.
  struct Share {
    ReplicaTables tables;
    weights::BroadcastSplit::Cuts all;
    std::vector<weights::BroadcastSplit::Cuts> parts;  // by rank
  };

  // `sizes`: all that the fleet's replicas have, ascending; num_ranks is one of them.
  absl::StatusOr<const Share*> ShareOf(int num_ranks, const std::vector<int>& sizes,
                                       bool keeps_frozen);
  // Null if all ranks hold everything.
  absl::StatusOr<std::optional<weights::BroadcastSplit>> SplitFor(const std::vector<int>& fleet,
                                                                  bool keeps_frozen);

  std::map<std::string, Share> shares_;  // by the id of their tables
  const StarRoute route_;
  weights::BroadcastTransport buckets_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_SEND_BY_BROADCAST_H_
