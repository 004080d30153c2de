// TrainerLeader: the trainer as one thing: the counters of the run (step, policy version, the
// driver's state, the stored answer of the last step) and the operations that change them, each
// carried out by all ranks.
//
// Threads: the operations run on the collective thread, one at a time; CheckHeader(),
// GetModelInfo() and status() may be called from any. When a rank is lost the operation answers
// UNAVAILABLE naming it, the status turns to FAILED, and every later operation answers the same.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_LEADER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_LEADER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/trainer/data/sample_validation.h"
#include "services/trainer/service/checkpoint_saver.h"
#include "services/trainer/service/rank_team.h"
#include "services/trainer/service/trainer_engine.h"
#include "services/trainer/service/trainer_metrics.h"
#include "services/trainer/service/trainer_status.h"
#include "tandem/common/v1/sample.pb.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/diagnostics/v1/diagnostics_service.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

class TrainerLeader {
 public:
  // `model_info` states what does not change: architecture, sizes, manifest, incarnation. `engine`
  // is this rank's, which `team` runs commands on; all three outlive the leader.
  TrainerLeader(const config::v1::RunConfig& config, v1::GetModelInfoResponse model_info,
                TrainerEngine& engine, RankTeam& team, TrainerStatus& status);
  ~TrainerLeader() { metrics_->Detach(); }

  v1::GetModelInfoResponse GetModelInfo() const;
  TrainerStatus& status() { return status_; }
  std::shared_ptr<TrainerMetrics> metrics() const { return metrics_; }

  // What the first message of a step means. FAILED_PRECONDITION for another incarnation
  // (STALE_INCARNATION) or another step than the next (STEP_OUT_OF_ORDER); INVALID_ARGUMENT for a
  // header that is not complete. Advice, given early: TrainStep() checks again when its turn comes.
  enum class HeaderMeaning {
    kNew,     // read the samples, then TrainStep()
    kRepeat,  // a step that is done or being done: TrainStep() without samples answers it
  };
  absl::StatusOr<HeaderMeaning> CheckHeader(const v1::TrainStepHeader& header) const;

  // What samples of the objective must be like.
  SampleLimits LimitsFor(v1::Objective objective) const;

  // `samples` are valid and hold a token to train on; nullopt for a repeat.
  absl::StatusOr<v1::TrainStepResponse> TrainStep(
      const v1::TrainStepHeader& header,
      const std::optional<std::vector<common::v1::Sample>>& samples);
  // The request is valid.
  absl::StatusOr<v1::ComputeLogProbsResponse> ComputeLogProbs(
      const v1::ComputeLogProbsRequest& request);
  absl::StatusOr<v1::PublishWeightsResponse> PublishWeights(
      const v1::PublishWeightsRequest& request);
  absl::StatusOr<v1::GetWeightDigestsResponse> GetWeightDigests(
      const v1::GetWeightDigestsRequest& request);
  absl::StatusOr<v1::SaveCheckpointResponse> SaveCheckpoint(
      const v1::SaveCheckpointRequest& request);
  absl::StatusOr<v1::LoadCheckpointResponse> LoadCheckpoint(
      const v1::LoadCheckpointRequest& request);

  // What every rank reaches, and what it found as a member of a probe's group. Neither is an error
  // of the trainer, whatever they found.
  absl::StatusOr<diagnostics::v1::CheckReachResponse> CheckReach(
      const diagnostics::v1::CheckReachRequest& request);
  absl::StatusOr<diagnostics::v1::ProbeResults> ProbeGroup(
      const diagnostics::v1::ProbeGroupRequest& request);

  // Shows that all ranks are there; called now and then while nothing else is to be done.
  absl::Status Heartbeat();
  // Waits for a checkpoint that is being written: before the ranks are told to end.
  absl::Status FinishCheckpoint() { return SettleCheckpoint(/*wait=*/true); }

 private:
  absl::StatusOr<v1::TrainStepResponse> RunTrainStep(
      const v1::TrainStepHeader& header,
      const std::optional<std::vector<common::v1::Sample>>& samples);
  absl::StatusOr<v1::PublishWeightsResponse> RunPublish(const v1::PublishWeightsRequest& request);
  absl::Status CheckIncarnation(int64_t incarnation) const;
  // Runs the command on all ranks. An error of the team fails the trainer; an error of a rank that
  // it lives through is answered with the rank's name.
  absl::StatusOr<std::vector<RankResult>> RunOnRanks(Opcode opcode, std::string payload);
  absl::StatusOr<v1::LoadCheckpointResponse> LoadInitialState(
      const v1::LoadCheckpointRequest& request);
  absl::Status BeginCheckpoint(const std::string& path, const std::string& driver_state);
  // Takes note of how the checkpoint that is being written ended, for the next answer to tell.
  absl::Status SettleCheckpoint(bool wait);
  std::optional<v1::CheckpointOutcome> TakeOutcome();

  const config::v1::RunConfig config_;
  const v1::GetModelInfoResponse model_info_;  // version and step as of the start
  TrainerEngine& engine_;
  RankTeam& team_;
  TrainerStatus& status_;
  CheckpointSaver saver_;
  const std::shared_ptr<TrainerMetrics> metrics_;
  std::optional<v1::CheckpointOutcome> outcome_;  // not yet told
  bool holds_initial_state_ = true;               // nothing was trained or loaded since

  mutable absl::Mutex mu_;
  int64_t policy_version_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t running_step_ ABSL_GUARDED_BY(mu_) = 0;  // 0: none
  std::string driver_state_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::TrainStepResponse> last_response_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_LEADER_H_
