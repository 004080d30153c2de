#include "services/trainer/service/rank_publisher.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/io/dtype.h"
#include "common/status/status_macros.h"
#include "common/weights/manifest.h"
#include "services/trainer/fsdp/shard_layout.h"

namespace tandem::trainer {

absl::StatusOr<std::unique_ptr<RankPublisher>> RankPublisher::Create(
    TrainerEngine& engine, const config::v1::RunConfig& config) {
  const io::DType dtype =
      engine.compute_dtype() == at::kBFloat16 ? io::DType::kBF16 : io::DType::kF32;
  const model::ParameterTable whole(engine.spec());
  ASSIGN_OR_RETURN(weights::Manifest manifest, weights::MakeManifest(whole, dtype));
  const int64_t total_bytes =
      whole.num_parameters() * static_cast<int64_t>(c10::elementSize(engine.compute_dtype()));
  const int64_t most_bytes =
      config.rollout().update_weights_bucket_megabytes() * (int64_t{1} << 20);
  ASSIGN_OR_RETURN(weights::TransferPlan plan,
                   weights::MakeTransferPlan(std::move(manifest),
                                             weights::ChooseBucketBytes(most_bytes, total_bytes)));
  std::unique_ptr<RankPublisher> out(new RankPublisher(engine, config, std::move(plan)));

  ShardedWeights shards;
  const comm::DeviceMesh& mesh = engine.mesh();
  const bool split = mesh.shape().tp > 1;
  // The ranks of the first copy are the first of the mesh.
  comm::ProcessGroup& group = split ? mesh.world() : mesh.shard();
  shards.ranks = mesh.shape().dp_shard * mesh.shape().tp;
  shards.rank = mesh.rank() % shards.ranks;
  if (split) {
    shards.layout = std::make_shared<ShardLayout>(engine.policy().transformer(), mesh.shape());
  }
  for (const UnitShard& shard : engine.policy().shards()) {
    shards.units.push_back({shard.master, shard.numel, shard.padded_numel});
  }
  if (mesh.replicate().rank() == 0) {
    ASSIGN_OR_RETURN(out->source_,
                     ShardGatherSource::Create(out->plan_, std::move(shards), &group));
  }
  return out;
}

RankPublisher::RankPublisher(TrainerEngine& engine, const config::v1::RunConfig& config,
                             weights::TransferPlan plan)
    : engine_(engine), config_(config), plan_(std::move(plan)) {}

absl::StatusOr<v1::PublishWeightsResponse> RankPublisher::Publish(
    const v1::PublishWeightsRequest& request) {
  if (engine_.mesh().rank() == 0) return Lead(request);
  // The leader gathers from those who share its copy of the model.
  if (engine_.mesh().replicate().rank() == 0) RETURN_IF_ERROR(source_->Follow());
  return v1::PublishWeightsResponse();
}

absl::StatusOr<v1::PublishWeightsResponse> RankPublisher::Lead(
    const v1::PublishWeightsRequest& request) {
  if (publisher_ == nullptr) {
    WeightPublisher::Options options;
    options.plan = &plan_;
    options.source = source_.get();
    options.incarnation = request.incarnation();
    options.policy = config_.trainer().update_policy() == config::v1::UPDATE_POLICY_AVAILABLE
                         ? UpdatePolicy::kAvailable
                         : UpdatePolicy::kAll;
    if (config_.trainer().shared_memory()) options.backend = "shared_memory";
    absl::StatusOr<std::unique_ptr<WeightPublisher>> publisher = WeightPublisher::Create(options);
    if (!publisher.ok()) {
      RETURN_IF_ERROR(source_->End());  // the other ranks follow already
      return publisher.status();
    }
    publisher_ = *std::move(publisher);
  }
  std::vector<ReplicaEndpoint> replicas;
  for (const v1::RolloutReplica& replica : request.replicas()) {
    replicas.push_back(
        {replica.replica_id(), {replica.rank_addresses().begin(), replica.rank_addresses().end()}});
  }
  ASSIGN_OR_RETURN(const PublishReport report,
                   publisher_->Publish(request.policy_version(), replicas,
                                       absl::Seconds(config_.trainer().update_timeout_s())));
  v1::PublishWeightsResponse response;
  response.set_policy_version(report.policy_version);
  response.set_model_digest(report.model_digest);
  response.set_size_bytes(report.size_bytes);
  response.set_seconds(report.seconds);
  for (const common::v1::PhaseSeconds& phase : report.times.phases())
    *response.add_phases() = phase;
  for (const PublishReport::Replica& replica : report.replicas) {
    v1::ReplicaResult& result = *response.add_replicas();
    result.set_replica_id(replica.id);
    result.set_committed(replica.committed);
    if (!replica.error.ok()) result.set_error(std::string(replica.error.message()));
    result.set_pause_seconds(replica.pause_seconds);
  }
  return response;
}

}  // namespace tandem::trainer
