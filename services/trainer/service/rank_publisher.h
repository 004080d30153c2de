// RankPublisher: one rank's part in making weights live on rollouts. The leader runs the
// transaction; the others send their shards of each bucket when the leader asks.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/device_ops.h"
#include "common/weights/model_layout.h"
#include "services/trainer/publish/reshard_feeds.h"
#include "services/trainer/publish/reshard_follower.h"
#include "services/trainer/publish/shard_gather_source.h"
#include "services/trainer/publish/weight_publisher.h"
#include "services/trainer/service/trainer_engine.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/trainer/v1/publish_order.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

// Threads: the collective thread; every rank calls Publish() at the same place in its order of
// collectives. The engine outlives it.
class RankPublisher {
 public:
  struct Options {
    // All ranks, for tensors on the CPU: orders, reports, and the bytes of updates that lie there.
    // It outlives the publisher. Null: the mesh's own world is such a group.
    comm::ProcessGroup* control = nullptr;
    // Where the bytes of updates lie on both sides: the CPU, or the engine's device, from which
    // they then go over NCCL, or through its memory to rollouts that use the same.
    at::Device update_device = at::kCPU;
    // What the trainer's ranks know (TANDEM_GROUP_SECRET): an update's secret travels to them
    // encrypted under it. May be empty.
    std::string group_secret;
  };

  static absl::StatusOr<std::unique_ptr<RankPublisher>> Create(TrainerEngine& engine,
                                                               const config::v1::RunConfig& config,
                                                               Options options);
  static absl::StatusOr<std::unique_ptr<RankPublisher>> Create(
      TrainerEngine& engine, const config::v1::RunConfig& config) {
    return Create(engine, config, Options());
  }

  // The wire digests of what this rank answers for (CountedHoldings); those of all ranks add up to
  // the tensors'. No collective.
  absl::StatusOr<v1::HeldDigests> DigestHeld();

  // The request states version and incarnation. The answer is the leader's; other ranks' is empty.
  // An error is fatal for the trainer only where the engine's group is broken after it.
  absl::StatusOr<v1::PublishWeightsResponse> Publish(const v1::PublishWeightsRequest& request);

 private:
  RankPublisher(TrainerEngine& engine, const config::v1::RunConfig& config,
                comm::ProcessGroup& control, std::string group_secret,
                std::unique_ptr<weights::DeviceOps> ops);
  absl::StatusOr<v1::PublishWeightsResponse> TakePart(const v1::PublishWeightsRequest& request);
  absl::Status PrepareBroadcast(weights::Manifest manifest);
  absl::Status PrepareReshard(weights::Manifest manifest);
  ShardedWeights Shards() const;
  absl::StatusOr<weights::ModelLayout> Layout() const;  // of the trainer's ranks
  RolloutLayouts Rollouts() const;
  int64_t MostBucketBytes() const;
  absl::StatusOr<v1::PublishWeightsResponse> Lead(const v1::PublishWeightsRequest& request);

  TrainerEngine& engine_;
  const config::v1::RunConfig config_;
  comm::ProcessGroup& control_;
  const std::string group_secret_;
  const std::unique_ptr<weights::DeviceOps> ops_;  // of the update device
  weights::Manifest manifest_;                     // of whole tensors, in wire type
  // Of a broadcast.
  weights::TransferPlan plan_;
  std::unique_ptr<ShardGatherSource> source_;  // null on ranks that give nothing
  // Of a reshard.
  std::unique_ptr<ReshardFeeds> feeds_;
  std::unique_ptr<ReshardFollower> follower_;  // null on the leader
  // Of the leader.
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<WeightPublisher> publisher_;  // made by the first update
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_
