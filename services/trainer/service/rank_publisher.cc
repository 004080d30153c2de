#include "services/trainer/service/rank_publisher.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"
#include "common/weights/holdings.h"
#include "common/weights/manifest.h"
#include "common/weights/model_layout.h"
#include "common/weights/update_place.h"
#include "services/trainer/fsdp/shard_layout.h"
#include "services/trainer/publish/digest_lanes.h"
#include "services/trainer/publish/send_by_broadcast.h"
#include "services/trainer/publish/send_by_reshard.h"
#include "services/trainer/publish/shard_pieces.h"

namespace tandem::trainer {

namespace {

// Of all ranks, by rank. Collective.
absl::StatusOr<std::vector<common::v1::UpdatePlace>> GatherPlaces(
    const common::v1::UpdatePlace& own, comm::ProcessGroup& ranks) {
  constexpr int64_t kRoom = 512;  // bytes: a GPU's id and a host's, padded with zeros
  if (ranks.size() == 1) return std::vector<common::v1::UpdatePlace>{own};
  const std::string bytes = absl::StrCat(own.gpu(), "\n", own.host());
  if (static_cast<int64_t>(bytes.size()) > kRoom) {
    return absl::InternalError(absl::StrCat("this host's name has ", bytes.size(), " bytes"));
  }
  const at::Tensor mine = at::zeros({kRoom}, at::kByte);
  std::memcpy(mine.data_ptr(), bytes.data(), bytes.size());
  const at::Tensor all = at::empty({ranks.size() * kRoom}, at::kByte);
  ASSIGN_OR_RETURN(auto work, ranks.AllGather(all, mine, "places of weight updates"));
  RETURN_IF_ERROR(work->Wait());
  std::vector<common::v1::UpdatePlace> places;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::string text(static_cast<const char*>(all.const_data_ptr()) + rank * kRoom, kRoom);
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(text.c_str(), absl::MaxSplits('\n', 1));
    places.emplace_back().set_gpu(parts.first);
    places.back().set_host(parts.second);
  }
  return places;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankPublisher>> RankPublisher::Create(
    TrainerEngine& engine, const config::v1::RunConfig& config, Options options) {
  ASSIGN_OR_RETURN(auto ops, weights::CreateDeviceOps(options.update_device));
  comm::ProcessGroup& control =
      options.control == nullptr ? engine.mesh().world() : *options.control;
  std::unique_ptr<RankPublisher> out(
      new RankPublisher(engine, config, control, std::move(options.group_secret), std::move(ops)));
  const model::UnitLimits& limits = engine.policy().transformer().table().unit_limits();
  const model::ParameterTable whole(engine.spec(),
                                    {.frozen_parameters = limits.frozen_parameters,
                                     .moves_correction_biases = limits.moves_correction_biases,
                                     .trains_vision = limits.trains_vision});
  ASSIGN_OR_RETURN(out->manifest_,
                   weights::MakeManifest(whole, model::FileDType(engine.compute_dtype())));
  const bool gathers =
      config.trainer().weight_transport() == config::v1::WEIGHT_TRANSPORT_BROADCAST;
  RETURN_IF_ERROR(gathers ? out->PrepareBroadcast(out->manifest_)
                          : out->PrepareReshard(out->manifest_));
  if (options.update_device.is_cpu()) return out;
  ASSIGN_OR_RETURN(const common::v1::UpdatePlace own, weights::PlaceOf(options.update_device));
  ASSIGN_OR_RETURN(out->places_, GatherPlaces(own, control));
  if (gathers) out->places_.resize(1);  // the leader alone sends
  return out;
}

RankPublisher::RankPublisher(TrainerEngine& engine, const config::v1::RunConfig& config,
                             comm::ProcessGroup& control, std::string group_secret,
                             std::unique_ptr<weights::DeviceOps> ops)
    : engine_(engine),
      config_(config),
      control_(control),
      group_secret_(std::move(group_secret)),
      ops_(std::move(ops)) {}

RankShards RankPublisher::Shards() const {
  RankShards shards;
  shards.units = engine_.policy().shards();
  const std::vector<model::Unit>& units = engine_.policy().transformer().table().units();
  for (size_t u = 0; u < units.size(); ++u) {
    if (!units[u].in_float32 || Float32Elements() == 1) continue;
    shards.units[u] = InWireElements(std::move(shards.units[u]), engine_.compute_dtype());
  }
  shards.ops = ops_.get();
  const comm::MeshShape& shape = engine_.mesh().shape();
  shards.ranks = shape.num_shards() * shape.tp;
  shards.rank = engine_.mesh().rank() % shards.ranks;
  if (shape.tp > 1 || shape.ep > 1 || engine_.policy().transformer().table().has_frozen()) {
    shards.layout =
        std::make_shared<ShardLayout>(engine_.policy().transformer(), shape, Float32Elements());
  }
  return shards;
}

absl::StatusOr<weights::ModelLayout> RankPublisher::Layout() const {
  return weights::LayoutOf(engine_.spec(), engine_.policy().transformer().table().unit_limits(),
                           engine_.mesh().shape().tp, engine_.mesh().shape().ep,
                           {.float32_elements = Float32Elements()});
}

int64_t RankPublisher::Float32Elements() const {
  return static_cast<int64_t>(sizeof(float) / c10::elementSize(engine_.compute_dtype()));
}

RolloutLayouts RankPublisher::Rollouts() const {
  const weights::LayoutForm form{.float32_elements = Float32Elements(),
                                 .whole_experts = config_.rollout().enable_expert_parallel()};
  return [spec = engine_.spec(), form](int num_ranks) {
    return weights::LayoutOf(spec, {}, std::max(1, num_ranks), /*ep=*/1, form);
  };
}

int64_t RankPublisher::MostBucketBytes() const {
  return config_.rollout().update_weights_bucket_megabytes() * (int64_t{1} << 20);
}

absl::Status RankPublisher::PrepareBroadcast(weights::Manifest manifest) {
  const int64_t bucket_bytes =
      weights::ChooseBucketBytes(MostBucketBytes(), weights::ManifestBytes(manifest).value_or(0));
  ASSIGN_OR_RETURN(plan_, weights::MakeTransferPlan(std::move(manifest), bucket_bytes));
  const comm::DeviceMesh& mesh = engine_.mesh();
  if (mesh.replicate().rank() != 0) return absl::OkStatus();
  // The leader gathers from the ranks that share its copy of the model: the first ranks of the
  // mesh. Bytes on the CPU go through a group of these.
  comm::ProcessGroup& device_group = mesh.shape().tp > 1 ? mesh.world() : mesh.shard();
  const bool separate = &control_ != &mesh.world();
  comm::ProcessGroup& group = separate && ops_->on_host() ? control_ : device_group;
  ASSIGN_OR_RETURN(
      source_, ShardGatherSource::Create(plan_, Shards(), &group, separate ? &control_ : nullptr));
  if (mesh.rank() == 0) {
    transport_ = std::make_unique<SendByBroadcast>(
        Rollouts(), source_.get(), absl::Seconds(config_.trainer().collective_timeout_s()));
  }
  return absl::OkStatus();
}

absl::Status RankPublisher::PrepareReshard(weights::Manifest manifest) {
  const comm::DeviceMesh& mesh = engine_.mesh();
  ASSIGN_OR_RETURN(const weights::ModelLayout trainer, Layout());
  const int64_t bytes = weights::ManifestBytes(manifest).value_or(0) / mesh.size();
  // Messages are small to fit a core's cache, which does not matter on a device.
  ReshardFeeds::Options options;
  options.trainer = weights::TrainerHoldings(trainer, mesh.shape());
  options.rank = mesh.rank();
  options.shards = Shards();
  options.rollout = Rollouts();
  options.manifest = std::move(manifest);
  options.bucket_bytes = ops_->on_host() ? weights::ChooseMessageBytes(MostBucketBytes(), bytes)
                                         : weights::ChooseBucketBytes(MostBucketBytes(), bytes);
  options.deltas = config_.trainer().weight_transport() == config::v1::WEIGHT_TRANSPORT_DELTA;
  feeds_ = std::make_unique<ReshardFeeds>(std::move(options));
  if (mesh.rank() > 0) {
    follower_ = std::make_unique<ReshardFollower>(feeds_.get(), &control_, group_secret_);
    return absl::OkStatus();
  }
  transport_ = std::make_unique<SendByReshard>(
      feeds_.get(), &control_, absl::Seconds(config_.trainer().collective_timeout_s()),
      group_secret_);
  return absl::OkStatus();
}

absl::StatusOr<v1::HeldDigests> RankPublisher::DigestHeld() {
  const comm::DeviceMesh& mesh = engine_.mesh();
  ASSIGN_OR_RETURN(const weights::ModelLayout layout, Layout());
  const auto held = PiecesOf(weights::CountedHoldings(layout, mesh.shape(), mesh.rank()));
  ASSIGN_OR_RETURN(const std::vector<weights::DigestSum> sums,
                   DigestShards(manifest_, Shards(), held));
  v1::HeldDigests out;
  AppendLanes(sums, *out.mutable_lanes());
  return out;
}

absl::StatusOr<v1::PublishWeightsResponse> RankPublisher::Publish(
    const v1::PublishWeightsRequest& request) {
  const auto entered = ops_->Enter();  // groups are joined for this device
  auto response = TakePart(request);
  // Without it no further update can be ordered: as fatal as a broken mesh.
  if (!response.ok() && !control_.status().ok()) {
    engine_.mesh().Abort(control_.status().message());
  }
  return response;
}

absl::StatusOr<v1::PublishWeightsResponse> RankPublisher::TakePart(
    const v1::PublishWeightsRequest& request) {
  if (transport_ != nullptr) return Lead(request);
  if (follower_ != nullptr) {
    RETURN_IF_ERROR(follower_->Follow());
  }
  if (source_ != nullptr) {
    RETURN_IF_ERROR(source_->Follow());
  }
  return v1::PublishWeightsResponse();
}

absl::StatusOr<v1::PublishWeightsResponse> RankPublisher::Lead(
    const v1::PublishWeightsRequest& request) {
  if (publisher_ == nullptr) {
    WeightPublisher::Options options;
    options.transport = transport_.get();
    options.incarnation = request.incarnation();
    options.policy = config_.trainer().update_policy() == config::v1::UPDATE_POLICY_AVAILABLE
                         ? UpdatePolicy::kAvailable
                         : UpdatePolicy::kAll;
    const bool shares = config_.trainer().shared_memory();
    options.senders = places_;
    options.shares_memory = shares;
    options.device = ops_->device();
    if (config_.trainer().weight_transport() == config::v1::WEIGHT_TRANSPORT_BROADCAST) {
      options.backend = shares ? "shared_memory" : "gloo";
    } else {
      options.backend = shares ? "messages" : "local_socket";
    }
    absl::StatusOr<std::unique_ptr<WeightPublisher>> publisher = WeightPublisher::Create(options);
    if (!publisher.ok()) {
      RETURN_IF_ERROR(transport_->End());  // the other ranks follow already
      return publisher.status();
    }
    publisher_ = *std::move(publisher);
  }
  publisher_->SetOwner(request.owner());
  std::vector<ReplicaEndpoint> replicas;
  for (const v1::RolloutReplica& replica : request.replicas()) {
    replicas.push_back({replica.replica_id(),
                        {replica.rank_addresses().begin(), replica.rank_addresses().end()},
                        replica.resend()});
  }
  ASSIGN_OR_RETURN(const PublishReport report,
                   publisher_->Publish(request.policy_version(), replicas,
                                       absl::Seconds(config_.trainer().update_timeout_s())));
  v1::PublishWeightsResponse response;
  response.set_policy_version(report.policy_version);
  response.set_model_digest(report.model_digest);
  response.set_size_bytes(report.size_bytes);
  response.set_sent_bytes(report.sent_bytes);
  response.set_max_rank_sent_bytes(report.max_rank_sent_bytes);
  if (report.changed_share.has_value()) response.set_changed_share(*report.changed_share);
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
  response.mutable_links()->Assign(report.links.begin(), report.links.end());
  return response;
}

}  // namespace tandem::trainer
