#include "services/trainer/service/trainer_leader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/model_folder.h"
#include "common/model/routed_experts.h"
#include "common/rank_setup/router_checks.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/request_id.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/telemetry/phase_timer.h"
#include "common/weights/tensor_digests.h"
#include "services/trainer/algorithm/training_step_options.h"
#include "services/trainer/publish/digest_lanes.h"
#include "services/trainer/service/rank_worker.h"
#include "tandem/trainer/v1/publish_order.pb.h"

namespace tandem::trainer {
namespace {

// Adds the metrics that differ between ranks: their memory.
absl::Status AddRankMetrics(const std::vector<RankResult>& results,
                            v1::TrainStepResponse& response) {
  for (const RankResult& result : results) {
    v1::TrainStepResponse of_rank;
    if (!of_rank.ParseFromString(result.payload)) {
      return absl::InternalError("cannot parse the result of the step");
    }
    v1::RankMetrics* const kept = response.add_rank_metrics();
    for (const auto& [name, value] : of_rank.metrics()) {
      if (!absl::StartsWith(name, "perf/") || !absl::EndsWith(name, "_bytes")) continue;
      (*kept->mutable_metrics())[name] = value;
      double& largest = (*response.mutable_metrics())[name];
      largest = std::max(largest, value);
    }
  }
  return absl::OkStatus();
}

absl::Status StepOutOfOrder(int64_t actual, int64_t last) {
  return rpc::WithReason(
      absl::FailedPreconditionError(
          last == 0 ? absl::StrFormat("step %d: expected step 1, the first", actual)
                    : absl::StrFormat(
                          "step %d: expected step %d, the next, or %d, which was applied last",
                          actual, last + 1, last)),
      "STEP_OUT_OF_ORDER",
      {{"expected", absl::StrCat(last + 1)}, {"actual", absl::StrCat(actual)}});
}

}  // namespace

TrainerLeader::TrainerLeader(const config::v1::RunConfig& config,
                             v1::GetModelInfoResponse model_info, TrainerEngine& engine,
                             RankTeam& team, TrainerStatus& status, rpc::MonotonicClock clock)
    : config_(config),
      model_info_(std::move(model_info)),
      engine_(engine),
      team_(team),
      status_(status),
      saver_([this](Opcode opcode,
                    std::string payload) { return RunOnRanks(opcode, std::move(payload)); },
             config.trainer().keep_last()),
      metrics_(std::make_shared<TrainerMetrics>(&status)),
      lease_({.first_epoch = model_info_.incarnation(),
              .duration = absl::Seconds(config.trainer().driver_lease_s()),
              .clock = std::move(clock)}),
      incarnations_({model_info_.incarnation()}) {
  metrics_->WatchLease(&lease_);
  status_.SetState(v1::TRAINER_STATE_READY);
}

absl::StatusOr<v1::AcquireLeaseResponse> TrainerLeader::AcquireLease(
    const v1::AcquireLeaseRequest& request) {
  ASSIGN_OR_RETURN(v1::AcquireLeaseResponse response, lease_.Acquire(request));
  response.set_incarnation(model_info_.incarnation());
  return response;
}

absl::Status TrainerLeader::RenewLease(const v1::RenewLeaseRequest& request) {
  return lease_.Renew(request.lease());
}

void TrainerLeader::ReleaseLease(const v1::ReleaseLeaseRequest& request) {
  lease_.Release(request.lease());
}

v1::GetModelInfoResponse TrainerLeader::GetModelInfo() const {
  v1::GetModelInfoResponse out = model_info_;
  if (std::optional<v1::LeaseHolder> holder = lease_.holder()) {
    *out.mutable_lease_holder() = *std::move(holder);
  }
  absl::MutexLock lock(&mu_);
  out.set_policy_version(policy_version_);
  out.set_step(step_);
  return out;
}

SampleLimits TrainerLeader::LimitsFor(v1::Objective objective) const {
  SampleLimits out;
  out.vocab_size = model_info_.vocab_size();
  out.max_position_embeddings = model_info_.max_position_embeddings();
  out.needs_advantages = objective == v1::OBJECTIVE_POLICY_GRADIENT;
  const TrainingStepOptions step = MakeTrainingStepOptions(config_);
  if (objective == v1::OBJECTIVE_SUPERVISED) out.num_teacher_top = step.teacher.top_k;
  if (out.needs_advantages) {
    out.needs_rollout_logprobs = step.needs_rollout_logprobs();
    out.needs_baseline_reward = step.needs_baseline_reward();
    out.needs_reward_parts = step.needs_reward_parts();
    out.needs_teacher_logprobs = step.teacher.on_policy;
    if (step.teacher.on_policy) out.num_teacher_top = step.teacher.top_k;
    out.needs_routed_experts = config_.actor().router_replay() == config::v1::ROUTER_REPLAY_R3;
  }
  if (auto layout = model::RoutedLayout::Of(engine_.spec()); layout.ok()) {
    out.routed_layout = *std::move(layout);
  }
  absl::MutexLock lock(&mu_);
  out.incarnations = incarnations_;
  return out;
}

absl::Status TrainerLeader::CheckImages(const v1::ComputeLogProbsRequest& request) const {
  for (int s = 0; s < request.sequences_size(); ++s) {
    RETURN_IF_ERROR(trainer::CheckImages(request.sequences(s), absl::StrCat("sequences[", s, "]"),
                                         engine_.pixels(), engine_.spec()));
  }
  return absl::OkStatus();
}

absl::Status TrainerLeader::CheckIncarnation(int64_t incarnation) const {
  if (incarnation == 0 || incarnation == model_info_.incarnation()) return absl::OkStatus();
  return rpc::WithReason(absl::FailedPreconditionError(absl::StrFormat(
                             "the call is for incarnation %d of the trainer, but this is %d: the "
                             "trainer restarted; call GetModelInfo and continue from there",
                             incarnation, model_info_.incarnation())),
                         "STALE_INCARNATION",
                         {{"expected", absl::StrCat(model_info_.incarnation())},
                          {"actual", absl::StrCat(incarnation)}});
}

absl::StatusOr<TrainerLeader::HeaderMeaning> TrainerLeader::CheckHeader(
    const v1::TrainStepHeader& header) {
  RETURN_IF_ERROR(rpc::CheckRequestId(header.request_id(), "header.request_id"));
  RETURN_IF_ERROR(lease_.CheckWrite(header.lease()));
  RETURN_IF_ERROR(CheckIncarnation(header.incarnation()));
  if (header.objective() != v1::OBJECTIVE_SUPERVISED &&
      header.objective() != v1::OBJECTIVE_POLICY_GRADIENT &&
      header.objective() != v1::OBJECTIVE_PREFERENCE) {
    return rpc::InvalidField(
        "header.objective",
        absl::StrCat("expected OBJECTIVE_SUPERVISED, OBJECTIVE_POLICY_GRADIENT or "
                     "OBJECTIVE_PREFERENCE; found ",
                     static_cast<int>(header.objective())));
  }
  if (header.objective() != v1::OBJECTIVE_POLICY_GRADIENT) {
    RETURN_IF_ERROR(setup::CheckRoutersOf(
        header.objective() == v1::OBJECTIVE_PREFERENCE ? "dpo" : "sft", config_.actor()));
  }
  if (header.total_steps() < 0) {
    return rpc::InvalidField("header.total_steps",
                             absl::StrCat("expected the steps of the run, or 0 for the trainer's "
                                          "trainer.total_steps; found ",
                                          header.total_steps()));
  }
  absl::MutexLock lock(&mu_);
  const bool is_running = header.step() == running_step_ && running_step_ != 0;
  const bool is_done = !is_running && header.step() == step_ && last_response_.has_value();
  if (is_running || is_done) {
    // Without a digest the samples themselves must show whether they are the same.
    if (header.samples_digest().empty()) return HeaderMeaning::kRead;
    RETURN_IF_ERROR(CheckRepeat(header, header.samples_digest(),
                                is_running ? running_run_ : last_response_->run_id(),
                                is_running ? running_digest_ : last_response_->samples_digest()));
    return HeaderMeaning::kRepeat;
  }
  // The step after the running one may wait for it in the queue.
  const int64_t last = std::max(step_, running_step_);
  if (header.step() != last + 1) return StepOutOfOrder(header.step(), last);
  return HeaderMeaning::kRead;
}

absl::Status TrainerLeader::CheckRepeat(const v1::TrainStepHeader& header,
                                        const std::string& digest, const std::string& known_run,
                                        const std::string& known_digest) {
  const std::string& run = header.lease().run_id();
  if (run == known_run && digest == known_digest) return absl::OkStatus();
  const auto name = [](const std::string& run_id) {
    return run_id.empty() ? std::string("no run") : absl::StrCat("run ", run_id);
  };
  return rpc::WithReason(
      absl::FailedPreconditionError(absl::StrFormat(
          "step %d was taken with samples of digest %s, of %s; this call has digest %s, of %s. It "
          "is not a repeat, and its samples were not trained on: call GetModelInfo, and continue "
          "with step %d",
          header.step(), known_digest, name(known_run), digest, name(run), header.step() + 1)),
      "STEP_DIFFERS",
      {{"step", absl::StrCat(header.step())},
       {"expected_digest", known_digest},
       {"actual_digest", digest},
       {"expected_run_id", known_run},
       {"actual_run_id", run}});
}

absl::StatusOr<std::vector<RankResult>> TrainerLeader::RunOnRanks(Opcode opcode,
                                                                  std::string payload) {
  RETURN_IF_ERROR(status_.Refusal());
  absl::StatusOr<std::vector<RankResult>> results = team_.Run({opcode, std::move(payload)});
  if (!results.ok()) {
    telemetry::LogError("the trainer cannot continue", {{"error", results.status().message()}});
    status_.SetFailed(results.status());
    return results.status();
  }
  for (size_t rank = 0; rank < results->size(); ++rank) {
    absl::Status status = std::move((*results)[rank].status);
    RETURN_IF_ERROR(std::move(status)) << "on trainer rank " << rank;
  }
  return results;
}

absl::StatusOr<v1::TrainStepResponse> TrainerLeader::TrainStep(
    const v1::TrainStepHeader& header, const std::optional<StepSamples>& samples) {
  const telemetry::Stopwatch watch;
  absl::StatusOr<v1::TrainStepResponse> response = RunTrainStep(header, samples);
  metrics_->OnStep(response, watch.seconds());
  return response;
}

absl::StatusOr<v1::TrainStepResponse> TrainerLeader::RunTrainStep(
    const v1::TrainStepHeader& header, const std::optional<StepSamples>& samples) {
  RETURN_IF_ERROR(lease_.CheckWrite(header.lease()));
  const std::string& digest = samples.has_value() ? samples->digest : header.samples_digest();
  {
    absl::MutexLock lock(&mu_);
    if (header.step() == step_ && last_response_.has_value()) {
      RETURN_IF_ERROR(
          CheckRepeat(header, digest, last_response_->run_id(), last_response_->samples_digest()));
    } else if (header.step() != step_ + 1) {
      return StepOutOfOrder(header.step(), step_);
    } else if (!samples.has_value()) {
      return absl::AbortedError(absl::StrFormat(
          "step %d was in progress when the call came and did not complete; send it again",
          header.step()));
    }
  }
  RETURN_IF_ERROR(request_ids_.Check(
      header.request_id(), "TrainStep",
      absl::StrCat(header.step(), " ", static_cast<int>(header.objective()), " ", digest)));
  {
    absl::MutexLock lock(&mu_);
    if (header.step() == step_) return *last_response_;
    // Check before any change: the step's result needs a version.
    RETURN_IF_ERROR(rpc::PolicyVersionAfter(policy_version_).status());
  }
  ASSIGN_OR_RETURN(std::string payload, EncodeTrainStep(header, samples->images, samples->samples));
  {
    absl::MutexLock lock(&mu_);
    running_step_ = header.step();
    running_run_ = header.lease().run_id();
    running_digest_ = digest;
  }
  ScopedTrainerState state(status_, v1::TRAINER_STATE_TRAINING);
  holds_initial_state_ = false;
  const auto results = RunOnRanks(Opcode::kTrainStep, std::move(payload));
  if (results.ok()) SettleCheckpoint(/*wait=*/false).IgnoreError();  // shows in the status
  v1::TrainStepResponse response;
  absl::MutexLock lock(&mu_);
  running_step_ = 0;
  RETURN_IF_ERROR(results.status());
  if (!response.ParseFromString((*results)[0].payload)) {
    return absl::InternalError("cannot parse the result of the step");
  }
  RETURN_IF_ERROR(AddRankMetrics(*results, response));
  if (response.policy_version() != 0 && response.policy_version() != 1) {
    return absl::InternalError(absl::StrCat("a rank reports that the step made ",
                                            response.policy_version(),
                                            " versions, expected 0 or 1"));
  }
  policy_version_ += response.policy_version();
  step_ = header.step();
  driver_state_ = header.driver_state();
  response.set_policy_version(policy_version_);
  response.set_run_id(header.lease().run_id());
  response.set_samples_digest(digest);
  response.mutable_incarnations()->Assign(incarnations_.begin(), incarnations_.end());
  last_response_ = response;
  if (std::optional<v1::CheckpointOutcome> outcome = TakeOutcome()) {
    *response.mutable_checkpoint() = *std::move(outcome);
  }
  status_.SetProgress(policy_version_, step_);
  telemetry::SetLogPolicyVersion(policy_version_);
  const auto& metrics = response.metrics();
  // Both are absent while only the critic learns.
  const auto value_of = [&metrics](const char* name) {
    const auto found = metrics.find(name);
    return found == metrics.end() ? 0.0 : found->second;
  };
  telemetry::LogInfo(
      "step done",
      {{"step", step_},
       {"samples", samples->samples.size()},
       {"loss", value_of(header.objective() == v1::OBJECTIVE_POLICY_GRADIENT ? "actor/loss"
                                                                             : "train/loss")},
       {"seconds", value_of("timing_s/update_actor")}});
  return response;
}

absl::StatusOr<v1::ComputeLogProbsResponse> TrainerLeader::ComputeLogProbs(
    const v1::ComputeLogProbsRequest& request) {
  ASSIGN_OR_RETURN(const std::vector<RankResult> results,
                   RunOnRanks(Opcode::kComputeLogProbs, request.SerializeAsString()));
  v1::ComputeLogProbsResponse response;
  if (!response.ParseFromString(results[0].payload)) {
    return absl::InternalError("cannot parse the ranks' result");
  }
  response.set_incarnation(model_info_.incarnation());
  absl::MutexLock lock(&mu_);
  response.set_policy_version(policy_version_);
  return response;
}

absl::StatusOr<v1::PublishWeightsResponse> TrainerLeader::PublishWeights(
    const v1::PublishWeightsRequest& request) {
  const telemetry::Stopwatch watch;
  absl::StatusOr<v1::PublishWeightsResponse> response = RunPublish(request);
  metrics_->OnUpdate(response, watch.seconds());
  return response;
}

absl::StatusOr<v1::PublishWeightsResponse> TrainerLeader::RunPublish(
    const v1::PublishWeightsRequest& request) {
  RETURN_IF_ERROR(lease_.CheckWrite(request.lease()));
  RETURN_IF_ERROR(CheckIncarnation(request.incarnation()));
  v1::PublishWeightsRequest command = request;
  *command.mutable_owner() = OwnerOf(request);
  {
    absl::MutexLock lock(&mu_);
    if (request.policy_version() >= 0 && request.policy_version() != policy_version_) {
      return rpc::WithReason(
          absl::FailedPreconditionError(absl::StrFormat(
              "the call is for policy version %d, but the policy is at %d; call GetModelInfo",
              request.policy_version(), policy_version_)),
          "VERSION_MISMATCH",
          {{"expected", absl::StrCat(policy_version_)},
           {"actual", absl::StrCat(request.policy_version())}});
    }
    command.set_policy_version(policy_version_);
  }
  v1::PublishWeightsRequest contents = request;
  contents.clear_message_digest();  // it covers the lease, which is new in a later process's retry
  RETURN_IF_ERROR(request_ids_.Check(request.request_id(), "PublishWeights", ContentsOf(contents)));
  command.set_incarnation(model_info_.incarnation());
  ScopedTrainerState state(status_, v1::TRAINER_STATE_PUBLISHING);
  ASSIGN_OR_RETURN(const std::vector<RankResult> results,
                   RunOnRanks(Opcode::kPublish, command.SerializeAsString()));
  v1::PublishWeightsResponse response;
  if (!response.ParseFromString(results[0].payload)) {
    return absl::InternalError("cannot parse the result of the update");
  }
  return response;
}

common::v1::WeightOwner TrainerLeader::OwnerOf(const v1::PublishWeightsRequest& request) const {
  common::v1::WeightOwner owner;
  owner.set_incarnation(model_info_.incarnation());
  owner.set_take_over(request.take_over());
  if (request.lease().run_id().empty()) return owner;
  owner.set_run_id(request.lease().run_id());
  if (const std::optional<v1::LeaseHolder> holder = lease_.holder()) {
    owner.set_driver(absl::StrFormat("process %d on %s, run folder %s", holder->pid(),
                                     holder->host(), holder->run_dir()));
    *owner.mutable_hold() = rpc::ToProto(lease_.duration());
  }
  return owner;
}

absl::StatusOr<v1::GetWeightDigestsResponse> TrainerLeader::GetWeightDigests(
    const v1::GetWeightDigestsRequest& request) {
  RETURN_IF_ERROR(CheckIncarnation(request.incarnation()));
  ASSIGN_OR_RETURN(const std::vector<RankResult> results, RunOnRanks(Opcode::kDigest, ""));
  const common::v1::Manifest& manifest = model_info_.manifest();
  std::vector<weights::DigestSum> sums(manifest.tensors_size());
  for (const RankResult& result : results) {
    v1::HeldDigests held;
    if (!held.ParseFromString(result.payload)) {
      return absl::InternalError("cannot parse a rank's digests");
    }
    RETURN_IF_ERROR(AddLanes(held.lanes(), absl::MakeSpan(sums))) << "a trainer rank";
  }
  const std::vector<common::v1::TensorDigest> digests = weights::MakeTensorDigests(manifest, sums);
  v1::GetWeightDigestsResponse response;
  response.set_incarnation(model_info_.incarnation());
  response.set_manifest_digest(manifest.digest());
  response.mutable_digests()->Assign(digests.begin(), digests.end());
  response.set_model_digest(weights::ModelDigest(digests));
  absl::MutexLock lock(&mu_);
  response.set_policy_version(policy_version_);
  return response;
}

absl::StatusOr<diagnostics::v1::CheckReachResponse> TrainerLeader::CheckReach(
    const diagnostics::v1::CheckReachRequest& request) {
  ASSIGN_OR_RETURN(const std::vector<RankResult> results,
                   RunOnRanks(Opcode::kReach, request.SerializeAsString()));
  diagnostics::v1::CheckReachResponse response;
  for (const RankResult& result : results) {
    if (!response.add_processes()->ParseFromString(result.payload)) {
      return absl::InternalError("cannot parse a rank's report");
    }
  }
  return response;
}

absl::StatusOr<diagnostics::v1::ProbeResults> TrainerLeader::ProbeGroup(
    const diagnostics::v1::ProbeGroupRequest& request) {
  ASSIGN_OR_RETURN(const std::vector<RankResult> results,
                   RunOnRanks(Opcode::kProbe, request.SerializeAsString()));
  diagnostics::v1::ProbeResults response;
  for (const RankResult& result : results) {
    if (!response.add_ranks()->ParseFromString(result.payload)) {
      return absl::InternalError("cannot parse a rank's probe");
    }
  }
  return response;
}

absl::Status TrainerLeader::Heartbeat() {
  RETURN_IF_ERROR(SettleCheckpoint(/*wait=*/false));
  return RunOnRanks(Opcode::kPing, "").status();
}

}  // namespace tandem::trainer
