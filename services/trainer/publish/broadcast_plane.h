// BroadcastPlane: the leader gathers the shards bucket by bucket and broadcasts each to all ranks
// of all replicas.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_BROADCAST_PLANE_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_BROADCAST_PLANE_H_

#include "common/weights/broadcast_transport.h"
#include "services/trainer/publish/data_plane.h"
#include "services/trainer/publish/shard_gather_source.h"

namespace tandem::trainer {

// The other ranks call source->Follow() meanwhile. Plan and source outlive it. `group_timeout` is
// what the source's group has between updates.
class BroadcastPlane : public DataPlane {
 public:
  BroadcastPlane(const weights::TransferPlan& plan, ShardGatherSource* source,
                 absl::Duration group_timeout);

  std::string transport() const override { return "broadcast"; }
  int num_senders() const override { return 1; }
  bool chained() const override { return false; }
  bool sends_deltas() const override { return false; }
  absl::Status CheckReplica(int) const override { return absl::OkStatus(); }
  const RankTable& table(int) const override { return table_; }
  int64_t model_bytes() const override { return plan_.total_bytes; }
  void Begin(absl::Time deadline) override { source_->Begin(deadline, group_timeout_); }
  absl::Status Order(const SendOrder& order) override;
  absl::StatusOr<SendResult> Send(comm::ProcessGroup& group, const SendOrder& order,
                                  weights::PhaseTimes& times) override;
  absl::Status Drain() override { return source_->Drain(); }
  absl::Status End() override { return source_->End(); }

 private:
  const weights::TransferPlan& plan_;
  ShardGatherSource* const source_;
  const absl::Duration group_timeout_;
  RankTable table_;
  weights::BroadcastTransport transport_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_BROADCAST_PLANE_H_
