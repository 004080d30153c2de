// RankPublisher: one rank's part in making weights live on rollouts. The leader runs the
// transaction; the others send their shards of each bucket on request.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_

#include <memory>
#include <string>
#include <vector>

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
    // All ranks, for tensors on the CPU: orders, reports, and update data kept there. Outlives the
    // publisher. Null: the mesh's own world is such a group.
    comm::ProcessGroup* control = nullptr;
    // Device of this rank's update data: the CPU, or the engine's device. From there data travels
    // over NCCL or CUDA IPC to rollouts that receive it on GPUs, otherwise through host memory.
    at::Device update_device = at::kCPU;
    // The trainer ranks' shared secret (TANDEM_GROUP_SECRET), which encrypts an update's secret on
    // its way to them. May be empty.
    std::string group_secret;
  };

  static absl::StatusOr<std::unique_ptr<RankPublisher>> Create(TrainerEngine& engine,
                                                               const config::v1::RunConfig& config,
                                                               Options options);
  static absl::StatusOr<std::unique_ptr<RankPublisher>> Create(
      TrainerEngine& engine, const config::v1::RunConfig& config) {
    return Create(engine, config, Options());
  }

  // Of whole tensors, in wire type; says which are trained.
  const weights::Manifest& manifest() const { return manifest_; }

  // The wire digests of this rank's CountedHoldings(); those of all ranks add up to the tensors'.
  // Not collective.
  absl::StatusOr<v1::HeldDigests> DigestHeld();

  // The request states version and incarnation. Only the leader's response is filled in. An error
  // is fatal for the trainer only if it leaves the engine's group broken.
  absl::StatusOr<v1::PublishWeightsResponse> Publish(const v1::PublishWeightsRequest& request);

 private:
  RankPublisher(TrainerEngine& engine, const config::v1::RunConfig& config,
                comm::ProcessGroup& control, std::string group_secret,
                std::unique_ptr<weights::DeviceOps> ops);
  absl::StatusOr<v1::PublishWeightsResponse> TakePart(const v1::PublishWeightsRequest& request);
  absl::Status PrepareBroadcast(weights::Manifest manifest);
  absl::Status PrepareReshard(weights::Manifest manifest);
  RankShards Shards() const;
  absl::StatusOr<weights::ModelLayout> Layout() const;  // of the trainer's ranks
  // Wire elements of an element in float32.
  int64_t Float32Elements() const;
  RolloutLayouts Rollouts() const;
  int64_t MostBucketBytes() const;
  absl::StatusOr<v1::PublishWeightsResponse> Lead(const v1::PublishWeightsRequest& request);

  TrainerEngine& engine_;
  const config::v1::RunConfig config_;
  comm::ProcessGroup& control_;
  const std::string group_secret_;
  const std::unique_ptr<weights::DeviceOps> ops_;  // of the update device
  std::vector<common::v1::UpdatePlace> places_;    // by rank; empty: host memory
  weights::Manifest manifest_;
  // For a broadcast.
  weights::TransferPlan plan_;
  std::unique_ptr<ShardGatherSource> source_;  // null on ranks that send nothing
  // For a reshard.
  std::unique_ptr<ReshardFeeds> feeds_;
  std::unique_ptr<ReshardFollower> follower_;  // null on the leader
  // On the leader.
  std::unique_ptr<SendTransport> transport_;
  std::unique_ptr<WeightPublisher> publisher_;  // created by the first update
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_
