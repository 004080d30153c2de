// RankPublisher: one rank's part in making weights live on rollouts. The leader runs the
// transaction; the others send their shards of each bucket when the leader asks.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/weights/bucket_plan.h"
#include "services/trainer/publish/shard_gather_source.h"
#include "services/trainer/publish/weight_publisher.h"
#include "services/trainer/service/trainer_engine.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

// Threads: the collective thread; every rank calls Publish() at the same place in its order of
// collectives. The engine outlives it.
class RankPublisher {
 public:
  static absl::StatusOr<std::unique_ptr<RankPublisher>> Create(TrainerEngine& engine,
                                                               const config::v1::RunConfig& config);

  // The request states version and incarnation. The answer is the leader's; other ranks' is empty.
  // An error is fatal for the trainer only where the engine's group is broken after it.
  absl::StatusOr<v1::PublishWeightsResponse> Publish(const v1::PublishWeightsRequest& request);

 private:
  RankPublisher(TrainerEngine& engine, const config::v1::RunConfig& config,
                weights::TransferPlan plan);
  absl::StatusOr<v1::PublishWeightsResponse> Lead(const v1::PublishWeightsRequest& request);

  TrainerEngine& engine_;
  const config::v1::RunConfig config_;
  const weights::TransferPlan plan_;
  std::unique_ptr<ShardGatherSource> source_;
  std::unique_ptr<WeightPublisher> publisher_;  // of the leader, made by the first update
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_RANK_PUBLISHER_H_
