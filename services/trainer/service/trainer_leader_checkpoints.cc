// The leader's operations that save and load the state of the run. trainer_leader.cc has the others.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/io/model_folder.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/trainer/service/allowed_path.h"
#include "services/trainer/service/rank_worker.h"
#include "services/trainer/service/trainer_leader.h"

namespace tandem::trainer {
namespace {

// Limit on stored incarnations: far more than a run's restarts.
constexpr int kMaxIncarnations = 4096;

}  // namespace

absl::StatusOr<v1::SaveCheckpointResponse> TrainerLeader::SaveCheckpoint(
    const v1::SaveCheckpointRequest& request) {
  RETURN_IF_ERROR(lease_.CheckWrite(request.lease()));
  ASSIGN_OR_RETURN(const std::string path,
                   ResolveUnder(request.path(), {config_.run_dir()}, "the run's"));
  RETURN_IF_ERROR(request_ids_.Check(request.request_id(), "SaveCheckpoint", ContentsOf(request)));
  ScopedTrainerState state(status_, v1::TRAINER_STATE_CHECKPOINTING);
  const bool has_begun =
      request.format() != v1::CHECKPOINT_FORMAT_HUGGING_FACE && HasBegun(path, request);
  RETURN_IF_ERROR(SettleCheckpoint(/*wait=*/true));
  v1::SaveCheckpointResponse response;
  if (std::optional<v1::CheckpointOutcome> earlier = TakeOutcome()) {
    *response.mutable_earlier() = *std::move(earlier);
  }
  {
    absl::MutexLock lock(&mu_);
    response.set_policy_version(policy_version_);
  }
  if (has_begun && response.has_earlier() && response.earlier().error().empty()) {
    response.set_size_bytes(response.earlier().size_bytes());
    return response;
  }
  if (request.format() == v1::CHECKPOINT_FORMAT_HUGGING_FACE) {
    ASSIGN_OR_RETURN(const std::vector<RankResult> results, RunOnRanks(Opcode::kExport, path));
    int64_t size_bytes = 0;
    if (!absl::SimpleAtoi(results[0].payload, &size_bytes)) {
      return absl::InternalError("cannot parse the size of the checkpoint");
    }
    response.set_size_bytes(size_bytes);
    telemetry::LogInfo("model written", {{"path", path}, {"bytes", size_bytes}});
    return response;
  }
  RETURN_IF_ERROR(BeginCheckpoint(path, request.driver_state()));
  if (request.asynchronous()) return response;
  RETURN_IF_ERROR(SettleCheckpoint(/*wait=*/true));
  const std::optional<v1::CheckpointOutcome> outcome = TakeOutcome();
  if (!outcome.has_value()) return absl::InternalError("cannot report the checkpoint's outcome");
  if (!outcome->error().empty()) {
    return absl::Status(static_cast<absl::StatusCode>(outcome->error_code()), outcome->error());
  }
  response.set_size_bytes(outcome->size_bytes());
  return response;
}

bool TrainerLeader::HasBegun(const std::string& path,
                             const v1::SaveCheckpointRequest& request) const {
  absl::MutexLock lock(&mu_);
  return saver_.HasBegun(path, step_,
                         request.driver_state().empty() ? driver_state_ : request.driver_state());
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
    if (last_response_.has_value()) {
      // The driver's state may hold samples of weights that were loaded since that step.
      v1::TrainStepResponse stored = *last_response_;
      stored.mutable_incarnations()->Assign(incarnations_.begin(), incarnations_.end());
      contents.last_response = stored.SerializeAsString();
    }
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
  RETURN_IF_ERROR(lease_.CheckWrite(request.lease()));
  RETURN_IF_ERROR(request_ids_.Check(request.request_id(), "LoadCheckpoint", ContentsOf(request)));
  // Apply once: a second time would add a version.
  if (!request.request_id().empty() && request.request_id() == last_load_id_) return last_load_;
  ASSIGN_OR_RETURN(v1::LoadCheckpointResponse response,
                   request.initial_state() ? LoadInitialState(request) : RunLoad(request));
  last_load_id_ = request.request_id();
  last_load_ = response;
  return response;
}

void TrainerLeader::SetIncarnations(const google::protobuf::RepeatedField<int64_t>& earlier) {
  incarnations_ = {model_info_.incarnation()};
  for (const int64_t incarnation : earlier) {
    if (static_cast<int>(incarnations_.size()) >= kMaxIncarnations) return;
    if (std::find(incarnations_.begin(), incarnations_.end(), incarnation) == incarnations_.end()) {
      incarnations_.push_back(incarnation);
    }
  }
}

absl::StatusOr<v1::LoadCheckpointResponse> TrainerLeader::RunLoad(
    const v1::LoadCheckpointRequest& request) {
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
  RETURN_IF_ERROR(rpc::CheckReportedVersion(path, manifest.policy_version));
  int64_t next_version = 0;
  {
    absl::MutexLock lock(&mu_);
    // A version names one set of bytes for ever, also among those that this process has published.
    ASSIGN_OR_RETURN(next_version,
                     rpc::PolicyVersionAfter(std::max({policy_version_, manifest.policy_version,
                                                       request.min_policy_version()})));
  }
  // Every rank has read everything it needs before any changes its weights.
  RETURN_IF_ERROR(RunOnRanks(Opcode::kVerifyShard, path).status());
  holds_initial_state_ = false;
  RETURN_IF_ERROR(RunOnRanks(Opcode::kReadShard, path).status());

  absl::MutexLock lock(&mu_);
  policy_version_ = next_version;
  step_ = manifest.step;
  driver_state_ = std::move(driver_state);
  last_response_.reset();
  SetIncarnations(last_response.incarnations());
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
  response.mutable_incarnations()->Assign(incarnations_.begin(), incarnations_.end());
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
  int64_t version = 0;
  {
    absl::MutexLock lock(&mu_);
    version = policy_version_;
  }
  // A version names one set of bytes for ever; the initial ones keep theirs.
  if (!is_there || request.min_policy_version() > version) {
    ASSIGN_OR_RETURN(version,
                     rpc::PolicyVersionAfter(std::max(version, request.min_policy_version())));
  }
  if (!is_there) {
    // Before any rank changes its weights.
    if (!config_.model().random_init()) {
      RETURN_IF_ERROR(io::ModelFolder::Open(config_.model().path()).status()) << "model.path";
    }
    RETURN_IF_ERROR(RunOnRanks(Opcode::kReset, "").status());
    holds_initial_state_ = true;
  }
  absl::MutexLock lock(&mu_);
  policy_version_ = version;
  SetIncarnations({});
  step_ = 0;
  driver_state_.clear();
  last_response_.reset();
  status_.SetProgress(policy_version_, step_);
  telemetry::SetLogPolicyVersion(policy_version_);
  if (!is_there) telemetry::LogInfo("restored the state before step 1");
  v1::LoadCheckpointResponse response;
  response.set_policy_version(policy_version_);
  response.mutable_incarnations()->Assign(incarnations_.begin(), incarnations_.end());
  return response;
}

}  // namespace tandem::trainer
