#include "tools/tandem/driver/trainer_client.h"

#include <future>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/new_uuid.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/samples_digest.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tandem/common/v1/error.pb.h"
#include "tools/tandem/driver/rank_addresses.h"

namespace tandem::driver {
namespace {

// Timeout for the addresses of a replica's ranks.
constexpr absl::Duration kAskTimeout = absl::Seconds(5);

// The digests of the sample's images that are not in `sent`, which gets them.
std::vector<std::string> NewDigests(const common::v1::Sample& sample, std::set<std::string>& sent) {
  std::vector<std::string> out;
  for (const common::v1::Segment& segment : sample.segments()) {
    for (const std::string& digest : segment.image_digests()) {
      if (sent.insert(digest).second) out.push_back(digest);
    }
  }
  return out;
}

absl::StatusOr<std::string> FileOf(const std::string& digest, const StepImages& images) {
  const auto found = images.find(digest);
  if (found != images.end()) return ReadImageFile(found->second);
  return absl::InternalError(absl::StrCat("no file is known for the image with the SHA-256 ",
                                          absl::BytesToHexString(digest)));
}

}  // namespace

TrainerClient::TrainerClient(std::string address, absl::Duration step_timeout,
                             absl::Duration update_timeout)
    : address_(std::move(address)),
      step_timeout_(step_timeout),
      update_timeout_(update_timeout),
      stub_(trainer::v1::TrainerService::NewStub(rpc::MakeChannel(address_))) {}

absl::Status TrainerClient::Named(const grpc::Status& status) const {
  RETURN_IF_ERROR(rpc::ExplainGarbled(rpc::FromGrpcStatus(status))) << "trainer at " << address_;
  return absl::OkStatus();
}

absl::Status TrainerClient::AcquireLease(LeaseOptions options) {
  absl::StatusOr<std::unique_ptr<LeaseKeeper>> lease =
      LeaseKeeper::Acquire(*stub_, std::move(options));
  RETURN_IF_ERROR(lease.status()) << "trainer at " << address_;
  lease_ = *std::move(lease);
  return absl::OkStatus();
}

void TrainerClient::ReleaseLease(const std::function<void()>& while_held) {
  if (lease_ != nullptr && while_held) lease_->End(while_held);
  lease_.reset();
}

absl::Status TrainerClient::LeaseStatus() const {
  if (lease_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(lease_->status()) << "trainer at " << address_;
  return absl::OkStatus();
}

trainer::v1::Lease TrainerClient::lease() const {
  return lease_ == nullptr ? trainer::v1::Lease() : lease_->lease();
}

absl::Status TrainerClient::CheckVersion(int64_t version) const {
  return rpc::CheckReportedVersion(absl::StrCat("trainer at ", address_), version);
}

absl::StatusOr<trainer::v1::GetModelInfoResponse> TrainerClient::GetModelInfo() {
  auto context = rpc::MakeContext(absl::Seconds(30));
  trainer::v1::GetModelInfoResponse response;
  RETURN_IF_ERROR(Named(stub_->GetModelInfo(context.get(), {}, &response)));
  RETURN_IF_ERROR(CheckVersion(response.policy_version()));
  return response;
}

absl::StatusOr<trainer::v1::TrainStepResponse> TrainerClient::TrainStep(
    int64_t step, trainer::v1::Objective objective, const std::vector<common::v1::Sample>& samples,
    int64_t total_steps, const StepImages& images) {
  RETURN_IF_ERROR(LeaseStatus());
  rpc::SamplesDigest digest;
  for (const common::v1::Sample& sample : samples) digest.Add(sample);
  auto context = rpc::MakeContext(step_timeout_);
  trainer::v1::TrainStepResponse response;
  auto writer = stub_->TrainStep(context.get(), &response);
  trainer::v1::TrainStepRequest message;
  message.mutable_header()->set_request_id(rpc::NewUuid());
  message.mutable_header()->set_step(step);
  message.mutable_header()->set_objective(objective);
  message.mutable_header()->set_num_samples(static_cast<int64_t>(samples.size()));
  message.mutable_header()->set_incarnation(incarnation());
  *message.mutable_header()->mutable_lease() = lease();
  message.mutable_header()->set_samples_digest(digest.Hex());
  message.mutable_header()->set_total_steps(total_steps);
  // If the trainer refuses the stream, writes fail, and the status has the reason.
  bool open = writer->Write(message);
  std::set<std::string> sent;
  for (size_t i = 0; open && i < samples.size(); ++i) {
    for (const std::string& digest : NewDigests(samples[i], sent)) {
      absl::StatusOr<std::string> file = FileOf(digest, images);
      if (!file.ok()) {
        context->TryCancel();
        writer->Finish().error_code();  // ours is the reason
        return StatusBuilder(file.status()) << "an image of step " << step;
      }
      message.mutable_image()->set_data(*std::move(file));
      open = open && writer->Write(message);
    }
    *message.mutable_sample() = samples[i];
    open = open && writer->Write(message);
  }
  writer->WritesDone();
  RETURN_IF_ERROR(Named(writer->Finish()));
  RETURN_IF_ERROR(CheckVersion(response.policy_version()));
  if (response.step() != step || response.samples_digest() != digest.Hex() ||
      response.run_id() != run_id()) {
    return absl::DataLossError(absl::StrCat(
        "trainer at ", address_, ": expected the result of step ", step, " with samples of digest ",
        digest.Hex(), ", found step ", response.step(), " with digest ", response.samples_digest(),
        " of run \"", response.run_id(), "\"; the samples were not trained on"));
  }
  return response;
}

absl::StatusOr<trainer::v1::PublishWeightsResponse> TrainerClient::PublishWeights(
    RolloutFleet& fleet) {
  ASSIGN_OR_RETURN(const std::vector<RolloutFleet::Replica> there, fleet.BeginPublish());
  // Each replica reports its ranks; all calls run at once.
  std::vector<std::future<std::vector<std::string>>> asked;
  for (const RolloutFleet::Replica& replica : there) {
    asked.push_back(std::async(std::launch::async, RankAddresses, replica.address, kAskTimeout));
  }
  std::vector<trainer::v1::RolloutReplica> replicas;
  for (size_t i = 0; i < there.size(); ++i) {
    const std::vector<std::string> ranks = asked[i].get();
    replicas.emplace_back().set_replica_id(there[i].id);
    replicas.back().mutable_rank_addresses()->Assign(ranks.begin(), ranks.end());
  }
  auto response = PublishWeights(replicas);
  if (!response.ok()) {
    fleet.AbandonPublish();
    return response;
  }
  std::set<std::string> committed;
  for (const trainer::v1::ReplicaResult& result : response->replicas()) {
    if (result.committed()) committed.insert(result.replica_id());
  }
  fleet.EndPublish(response->policy_version(), committed);
  return response;
}

absl::StatusOr<trainer::v1::PublishWeightsResponse> TrainerClient::PublishWeights(
    const std::vector<trainer::v1::RolloutReplica>& replicas) {
  RETURN_IF_ERROR(LeaseStatus());
  // The trainer enforces the update's deadline. The call's is longer, so that the response can name
  // the process at fault.
  auto context = rpc::MakeContext(update_timeout_ + absl::Seconds(30));
  trainer::v1::PublishWeightsRequest request;
  request.set_request_id(rpc::NewUuid());
  request.set_policy_version(-1);
  request.set_incarnation(incarnation());
  *request.mutable_lease() = lease();
  request.set_take_over(takes_replicas_over_ || (lease_ != nullptr && lease_->takes_over()));
  request.mutable_replicas()->Assign(replicas.begin(), replicas.end());
  trainer::v1::PublishWeightsResponse response;
  rpc::SetDigest(request);
  const absl::Status status = Named(stub_->PublishWeights(context.get(), request, &response));
  // Only the trainer itself sends its time, not proxies or gRPC.
  const bool answered = context->GetServerTrailingMetadata().count(rpc::kServerTime) > 0;
  if (!status.ok() && answered && !rpc::GetDetail<common::v1::ErrorInfo>(status).has_value()) {
    return rpc::WithReason(status, kPublishedToNobody);
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(rpc::CheckDigest(response, request.message_digest()))
      << "trainer at " << address_;
  RETURN_IF_ERROR(CheckVersion(response.policy_version()));
  return response;
}

absl::StatusOr<trainer::v1::GetWeightDigestsResponse> TrainerClient::GetWeightDigests() {
  auto context = rpc::MakeContext(update_timeout_ + absl::Seconds(30));
  trainer::v1::GetWeightDigestsResponse response;
  RETURN_IF_ERROR(Named(stub_->GetWeightDigests(context.get(), {}, &response)));
  RETURN_IF_ERROR(CheckVersion(response.policy_version()));
  return response;
}

absl::StatusOr<trainer::v1::ComputeLogProbsResponse> TrainerClient::ComputeLogProbs(
    const trainer::v1::ComputeLogProbsRequest& request) {
  auto context = rpc::MakeContext(step_timeout_);
  trainer::v1::ComputeLogProbsResponse response;
  RETURN_IF_ERROR(Named(stub_->ComputeLogProbs(context.get(), request, &response)));
  return response;
}

absl::StatusOr<trainer::v1::SaveCheckpointResponse> TrainerClient::SaveCheckpoint(
    const std::string& path, trainer::v1::CheckpointFormat format) {
  trainer::v1::SaveCheckpointRequest request;
  request.set_path(path);
  request.set_format(format);
  return Save(request);
}

absl::StatusOr<trainer::v1::SaveCheckpointResponse> TrainerClient::SaveSharded(
    const std::string& path, std::string driver_state, SaveUntil until) {
  trainer::v1::SaveCheckpointRequest request;
  request.set_path(path);
  request.set_format(trainer::v1::CHECKPOINT_FORMAT_SHARDED);
  request.set_asynchronous(until == SaveUntil::kCopied);
  request.set_driver_state(std::move(driver_state));
  return Save(request);
}

absl::StatusOr<trainer::v1::SaveCheckpointResponse> TrainerClient::Save(
    const trainer::v1::SaveCheckpointRequest& request) {
  RETURN_IF_ERROR(LeaseStatus());
  auto context = rpc::MakeContext(step_timeout_);
  trainer::v1::SaveCheckpointRequest identified = request;
  identified.set_request_id(rpc::NewUuid());
  *identified.mutable_lease() = lease();
  trainer::v1::SaveCheckpointResponse response;
  RETURN_IF_ERROR(Named(stub_->SaveCheckpoint(context.get(), identified, &response)));
  return response;
}

absl::StatusOr<trainer::v1::LoadCheckpointResponse> TrainerClient::LoadCheckpoint(
    const std::string& path, int64_t min_policy_version) {
  trainer::v1::LoadCheckpointRequest request;
  request.set_path(path);
  request.set_min_policy_version(min_policy_version);
  return Load(std::move(request));
}

absl::StatusOr<trainer::v1::LoadCheckpointResponse> TrainerClient::LoadInitialState(
    int64_t min_policy_version) {
  trainer::v1::LoadCheckpointRequest request;
  request.set_initial_state(true);
  request.set_min_policy_version(min_policy_version);
  return Load(std::move(request));
}

absl::StatusOr<trainer::v1::LoadCheckpointResponse> TrainerClient::Load(
    trainer::v1::LoadCheckpointRequest request) {
  RETURN_IF_ERROR(LeaseStatus());
  auto context = rpc::MakeContext(step_timeout_);
  request.set_request_id(rpc::NewUuid());
  *request.mutable_lease() = lease();
  trainer::v1::LoadCheckpointResponse response;
  RETURN_IF_ERROR(Named(stub_->LoadCheckpoint(context.get(), request, &response)));
  RETURN_IF_ERROR(CheckVersion(response.policy_version()));
  return response;
}

}  // namespace tandem::driver
