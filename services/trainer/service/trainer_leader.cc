#include "services/trainer/service/trainer_leader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/manifest.h"
#include "common/io/model_folder.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/telemetry/phase_timer.h"
#include "common/weights/digest.h"
#include "services/trainer/algorithm/training_step_options.h"
#include "services/trainer/service/allowed_path.h"
#include "services/trainer/service/rank_worker.h"
#include "tandem/trainer/v1/publish_order.pb.h"

namespace tandem::trainer {
namespace {

// What differs between ranks: their memory.
absl::Status AddRankMetrics(const std::vector<RankResult>& results,
                            v1::TrainStepResponse& response) {
  for (const RankResult& result : results) {
    v1::TrainStepResponse of_rank;
    if (!of_rank.ParseFromString(result.payload)) {
      return absl::InternalError("the result of the step is garbled");
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
                             RankTeam& team, TrainerStatus& status)
    : config_(config),
      model_info_(std::move(model_info)),
      engine_(engine),
      team_(team),
      status_(status),
      saver_([this](Opcode opcode,
                    std::string payload) { return RunOnRanks(opcode, std::move(payload)); },
             config.trainer().keep_last()),
      metrics_(std::make_shared<TrainerMetrics>(&status)) {
  status_.SetState(v1::TRAINER_STATE_READY);
}

v1::GetModelInfoResponse TrainerLeader::GetModelInfo() const {
  v1::GetModelInfoResponse out = model_info_;
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
  if (out.needs_advantages) {
    const TrainingStepOptions step = MakeTrainingStepOptions(config_);
    out.needs_rollout_logprobs = step.needs_rollout_logprobs();
    out.needs_baseline_reward = step.needs_baseline_reward();
  }
  return out;
}

absl::Status TrainerLeader::CheckIncarnation(int64_t incarnation) const {
  if (incarnation == 0 || incarnation == model_info_.incarnation()) return absl::OkStatus();
  return rpc::WithReason(
      absl::FailedPreconditionError(absl::StrFormat(
          "the call is for incarnation %d of the trainer and this is %d: it was started anew; ask "
          "GetModelInfo and begin from there",
          incarnation, model_info_.incarnation())),
      "STALE_INCARNATION",
      {{"expected", absl::StrCat(model_info_.incarnation())},
       {"actual", absl::StrCat(incarnation)}});
}

absl::StatusOr<TrainerLeader::HeaderMeaning> TrainerLeader::CheckHeader(
    const v1::TrainStepHeader& header) const {
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
  absl::MutexLock lock(&mu_);
  if (header.step() == running_step_ && running_step_ != 0) return HeaderMeaning::kRepeat;
  if (header.step() == step_ && last_response_.has_value()) return HeaderMeaning::kRepeat;
  // The step after the one that is being done may wait for it in the queue.
  const int64_t last = std::max(step_, running_step_);
  if (header.step() != last + 1) return StepOutOfOrder(header.step(), last);
  return HeaderMeaning::kNew;
}

absl::StatusOr<std::vector<RankResult>> TrainerLeader::RunOnRanks(Opcode opcode,
                                                                  std::string payload) {
  RETURN_IF_ERROR(status_.Refusal());
  absl::StatusOr<std::vector<RankResult>> results = team_.Run({opcode, std::move(payload)});
  if (!results.ok()) {
    telemetry::LogError("the trainer cannot go on", {{"error", results.status().message()}});
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
    const v1::TrainStepHeader& header,
    const std::optional<std::vector<common::v1::Sample>>& samples) {
  const telemetry::Stopwatch watch;
  absl::StatusOr<v1::TrainStepResponse> response = RunTrainStep(header, samples);
  metrics_->OnStep(response, watch.seconds());
  return response;
}

absl::StatusOr<v1::TrainStepResponse> TrainerLeader::RunTrainStep(
    const v1::TrainStepHeader& header,
    const std::optional<std::vector<common::v1::Sample>>& samples) {
  {
    absl::MutexLock lock(&mu_);
    if (header.step() == step_ && last_response_.has_value()) return *last_response_;
    if (header.step() != step_ + 1) return StepOutOfOrder(header.step(), step_);
    if (!samples.has_value()) {
      return absl::AbortedError(absl::StrFormat(
          "step %d was being done when the call came, and was not completed; send it again",
          header.step()));
    }
  }
  ASSIGN_OR_RETURN(std::string payload, EncodeTrainStep(header, *samples));
  {
    absl::MutexLock lock(&mu_);
    running_step_ = header.step();
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
    return absl::InternalError("the result of the step is garbled");
  }
  RETURN_IF_ERROR(AddRankMetrics(*results, response));
  policy_version_ += response.policy_version();
  step_ = header.step();
  driver_state_ = header.driver_state();
  response.set_policy_version(policy_version_);
  last_response_ = response;
  if (std::optional<v1::CheckpointOutcome> outcome = TakeOutcome()) {
    *response.mutable_checkpoint() = *std::move(outcome);
  }
  status_.SetProgress(policy_version_, step_);
  telemetry::SetLogPolicyVersion(policy_version_);
  const auto& metrics = response.metrics();
  // Neither is there while the critic learns alone.
  const auto value_of = [&metrics](const char* name) {
    const auto found = metrics.find(name);
    return found == metrics.end() ? 0.0 : found->second;
  };
  telemetry::LogInfo(
      "step done",
      {{"step", step_},
       {"samples", samples->size()},
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
    return absl::InternalError("the result of the ranks is garbled");
  }
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
  RETURN_IF_ERROR(CheckIncarnation(request.incarnation()));
  v1::PublishWeightsRequest command = request;
  {
    absl::MutexLock lock(&mu_);
    if (request.policy_version() >= 0 && request.policy_version() != policy_version_) {
      return rpc::WithReason(
          absl::FailedPreconditionError(absl::StrFormat(
              "the call is for policy version %d and the policy is at %d; ask GetModelInfo",
              request.policy_version(), policy_version_)),
          "VERSION_MISMATCH",
          {{"expected", absl::StrCat(policy_version_)},
           {"actual", absl::StrCat(request.policy_version())}});
    }
    command.set_policy_version(policy_version_);
  }
  command.set_incarnation(model_info_.incarnation());
  ScopedTrainerState state(status_, v1::TRAINER_STATE_PUBLISHING);
  ASSIGN_OR_RETURN(const std::vector<RankResult> results,
                   RunOnRanks(Opcode::kPublish, command.SerializeAsString()));
  v1::PublishWeightsResponse response;
  if (!response.ParseFromString(results[0].payload)) {
    return absl::InternalError("the result of the update is garbled");
  }
  return response;
}

absl::StatusOr<v1::GetWeightDigestsResponse> TrainerLeader::GetWeightDigests(
    const v1::GetWeightDigestsRequest& request) {
  RETURN_IF_ERROR(CheckIncarnation(request.incarnation()));
  ASSIGN_OR_RETURN(const std::vector<RankResult> results, RunOnRanks(Opcode::kDigest, ""));
  const common::v1::Manifest& manifest = model_info_.manifest();
  std::vector<weights::DigestSum> sums(manifest.tensors_size());
  for (const RankResult& result : results) {
    v1::HeldDigests held;
    if (!held.ParseFromString(result.payload) || held.lanes_size() != 2 * manifest.tensors_size()) {
      return absl::InternalError("a rank's digests are garbled");
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      const int lane = 2 * static_cast<int>(i);
      sums[i].Add({{held.lanes(lane), held.lanes(lane + 1)}});
    }
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

absl::StatusOr<v1::SaveCheckpointResponse> TrainerLeader::SaveCheckpoint(
    const v1::SaveCheckpointRequest& request) {
  ASSIGN_OR_RETURN(const std::string path,
                   ResolveUnder(request.path(), {config_.run_dir()}, "the run's"));
  ScopedTrainerState state(status_, v1::TRAINER_STATE_CHECKPOINTING);
  RETURN_IF_ERROR(SettleCheckpoint(/*wait=*/true));
  v1::SaveCheckpointResponse response;
  if (std::optional<v1::CheckpointOutcome> earlier = TakeOutcome()) {
    *response.mutable_earlier() = *std::move(earlier);
  }
  {
    absl::MutexLock lock(&mu_);
    response.set_policy_version(policy_version_);
  }
  if (request.format() == v1::CHECKPOINT_FORMAT_HUGGING_FACE) {
    ASSIGN_OR_RETURN(const std::vector<RankResult> results, RunOnRanks(Opcode::kExport, path));
    int64_t size_bytes = 0;
    if (!absl::SimpleAtoi(results[0].payload, &size_bytes)) {
      return absl::InternalError("the size of the checkpoint is garbled");
    }
    response.set_size_bytes(size_bytes);
    telemetry::LogInfo("model written", {{"path", path}, {"bytes", size_bytes}});
    return response;
  }
  RETURN_IF_ERROR(BeginCheckpoint(path, request.driver_state()));
  if (request.asynchronous()) return response;
  RETURN_IF_ERROR(SettleCheckpoint(/*wait=*/true));
  const std::optional<v1::CheckpointOutcome> outcome = TakeOutcome();
  if (!outcome.has_value()) return absl::InternalError("the checkpoint's end went unnoticed");
  if (!outcome->error().empty()) {
    return absl::Status(static_cast<absl::StatusCode>(outcome->error_code()), outcome->error());
  }
  response.set_size_bytes(outcome->size_bytes());
  return response;
}

absl::Status TrainerLeader::BeginCheckpoint(const std::string& path,
                                            const std::string& driver_state) {
  CheckpointSaver::Contents contents;
  contents.manifest.source_folder = config_.model().path();
  contents.manifest.scalars = engine_.AlgorithmScalars();
  for (const CheckpointedModel& model : engine_.checkpointed_models()) {
    contents.manifest.models.push_back(DescribeModel(model));
  }
  {
    absl::MutexLock lock(&mu_);
    contents.manifest.policy_version = policy_version_;
    contents.manifest.step = step_;
    contents.driver_state = driver_state.empty() ? driver_state_ : driver_state;
    if (last_response_.has_value()) contents.last_response = last_response_->SerializeAsString();
  }
  return saver_.Begin(path, std::move(contents));
}

absl::Status TrainerLeader::SettleCheckpoint(bool wait) {
  ASSIGN_OR_RETURN(std::optional<v1::CheckpointOutcome> outcome, saver_.Settle(wait));
  if (outcome.has_value()) outcome_ = std::move(outcome);
  return absl::OkStatus();
}

std::optional<v1::CheckpointOutcome> TrainerLeader::TakeOutcome() {
  return std::exchange(outcome_, std::nullopt);
}

absl::StatusOr<v1::LoadCheckpointResponse> TrainerLeader::LoadCheckpoint(
    const v1::LoadCheckpointRequest& request) {
  if (request.initial_state()) return LoadInitialState(request);
  std::vector<std::string> roots = {config_.run_dir()};
  const auto& others = config_.trainer().checkpoint_roots();
  roots.insert(roots.end(), others.begin(), others.end());
  ASSIGN_OR_RETURN(
      const std::string path,
      ResolveUnder(request.path(), roots, "the run's or one that trainer.checkpoint_roots allows"));
  ScopedTrainerState state(status_, v1::TRAINER_STATE_CHECKPOINTING);
  RETURN_IF_ERROR(SettleCheckpoint(/*wait=*/true));
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, checkpoint::ReadManifest(path));
  ASSIGN_OR_RETURN(std::string driver_state,
                   checkpoint::ReadSideFile(path, checkpoint::kDriverStateFile, manifest));
  ASSIGN_OR_RETURN(const std::string stored_response,
                   checkpoint::ReadSideFile(path, checkpoint::kLastResponseFile, manifest));
  v1::TrainStepResponse last_response;
  if (!last_response.ParseFromString(stored_response)) {
    return absl::DataLossError(
        absl::StrCat(path, "/", checkpoint::kLastResponseFile, " is garbled"));
  }
  // Every rank has read all that it needs before any changes its weights.
  RETURN_IF_ERROR(RunOnRanks(Opcode::kVerifyShard, path).status());
  holds_initial_state_ = false;
  RETURN_IF_ERROR(RunOnRanks(Opcode::kReadShard, path).status());

  absl::MutexLock lock(&mu_);
  // One version names one set of bytes for ever, also beside those that this process has published.
  policy_version_ =
      1 + std::max({policy_version_, manifest.policy_version, request.min_policy_version()});
  step_ = manifest.step;
  driver_state_ = std::move(driver_state);
  last_response_.reset();
  if (!stored_response.empty()) {
    last_response.set_policy_version(policy_version_);
    last_response_ = std::move(last_response);
  }
  status_.SetProgress(policy_version_, step_);
  telemetry::SetLogPolicyVersion(policy_version_);
  telemetry::LogInfo("checkpoint loaded", {{"path", path}, {"step", step_}});
  v1::LoadCheckpointResponse response;
  response.set_policy_version(policy_version_);
  response.set_step(step_);
  response.set_driver_state(driver_state_);
  return response;
}

absl::StatusOr<v1::LoadCheckpointResponse> TrainerLeader::LoadInitialState(
    const v1::LoadCheckpointRequest& request) {
  if (!request.path().empty()) {
    return rpc::InvalidField(
        "path", absl::StrCat("expected nothing with initial_state, found ", request.path()));
  }
  ScopedTrainerState state(status_, v1::TRAINER_STATE_CHECKPOINTING);
  RETURN_IF_ERROR(SettleCheckpoint(/*wait=*/true));
  const bool is_there = holds_initial_state_;
  if (!is_there) {
    // Before any rank changes its weights.
    if (!config_.model().random_init()) {
      RETURN_IF_ERROR(io::ModelFolder::Open(config_.model().path()).status()) << "model.path";
    }
    RETURN_IF_ERROR(RunOnRanks(Opcode::kReset, "").status());
    holds_initial_state_ = true;
  }
  absl::MutexLock lock(&mu_);
  // One version names one set of bytes for ever; those that were there from the start keep theirs.
  if (!is_there || request.min_policy_version() > policy_version_) {
    policy_version_ = 1 + std::max(policy_version_, request.min_policy_version());
  }
  step_ = 0;
  driver_state_.clear();
  last_response_.reset();
  status_.SetProgress(policy_version_, step_);
  telemetry::SetLogPolicyVersion(policy_version_);
  if (!is_there) telemetry::LogInfo("back to the state before step 1");
  v1::LoadCheckpointResponse response;
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
      return absl::InternalError("a rank's report is garbled");
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
      return absl::InternalError("a rank's probe is garbled");
    }
  }
  return response;
}

absl::Status TrainerLeader::Heartbeat() {
  RETURN_IF_ERROR(SettleCheckpoint(/*wait=*/false));
  return RunOnRanks(Opcode::kPing, "").status();
}

}  // namespace tandem::trainer
