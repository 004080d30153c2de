// TrainerLeader: the trainer as a whole: the counters of the run (step, policy version, the
// driver's state, the stored response of the last step) and the operations that change them, each
// executed by all ranks.
//
// One driver at a time: an operation that changes state checks the driver's lease first, when it is
// called and again when its turn comes.
//
// Threads: the operations run on the collective thread, one at a time. Any thread may call
// CheckHeader(), CheckWrite(), GetModelInfo(), status() and the lease's methods. When a rank is
// lost, the operation returns UNAVAILABLE naming it, the status becomes FAILED, and every later
// operation returns the same error.
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
#include "services/trainer/data/received_images.h"
#include "services/trainer/data/sample_validation.h"
#include "services/trainer/service/checkpoint_saver.h"
#include "services/trainer/service/driver_lease.h"
#include "services/trainer/service/rank_team.h"
#include "services/trainer/service/request_ids.h"
#include "services/trainer/service/trainer_engine.h"
#include "services/trainer/service/trainer_metrics.h"
#include "services/trainer/service/trainer_status.h"
#include "tandem/common/v1/sample.pb.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/diagnostics/v1/diagnostics_service.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

// The samples received for a step, their digest, and the images that they name.
struct StepSamples {
  std::vector<common::v1::Sample> samples;
  std::string digest;
  std::vector<common::v1::Image> images = {};
};

class TrainerLeader {
 public:
  // `model_info` states what is constant: architecture, sizes, manifest, incarnation. `engine` is
  // this rank's, on which `team` runs commands; engine, team and status outlive the leader. `clock`
  // is the lease's.
  TrainerLeader(const config::v1::RunConfig& config, v1::GetModelInfoResponse model_info,
                TrainerEngine& engine, RankTeam& team, TrainerStatus& status,
                rpc::MonotonicClock clock = rpc::MonotonicNow);
  ~TrainerLeader() { metrics_->Detach(); }

  v1::GetModelInfoResponse GetModelInfo() const;
  TrainerStatus& status() { return status_; }
  std::shared_ptr<TrainerMetrics> metrics() const { return metrics_; }

  absl::StatusOr<v1::AcquireLeaseResponse> AcquireLease(const v1::AcquireLeaseRequest& request);
  absl::Status RenewLease(const v1::RenewLeaseRequest& request);
  void ReleaseLease(const v1::ReleaseLeaseRequest& request);
  // Whether a call under `lease` may change state; see DriverLease. An early check: operations
  // check again when their turn comes.
  absl::Status CheckWrite(const v1::Lease& lease) { return lease_.CheckWrite(lease); }

  // Interprets the first message of a step. FAILED_PRECONDITION: the caller does not hold the
  // lease, another incarnation (STALE_INCARNATION), not the next step (STEP_OUT_OF_ORDER), or a
  // known step that differs (STEP_DIFFERS). INVALID_ARGUMENT: the header is incomplete. An early
  // check: TrainStep() checks again when its turn comes.
  enum class HeaderMeaning {
    kRead,    // read the samples, then TrainStep()
    kRepeat,  // a known step, by the header's digest: call TrainStep() without samples
  };
  absl::StatusOr<HeaderMeaning> CheckHeader(const v1::TrainStepHeader& header);

  // Limits for samples of the objective.
  SampleLimits LimitsFor(v1::Objective objective) const;

  // Takes the images of a call. The leader outlives it.
  ReceivedImages NewImages() const { return {engine_.pixels(), engine_.spec()}; }
  // INVALID_ARGUMENT for images that a request's sequences cannot show. Decodes them.
  absl::Status CheckImages(const v1::ComputeLogProbsRequest& request) const;

  // `samples` are valid and hold a token to train on; nullopt for a retry.
  absl::StatusOr<v1::TrainStepResponse> TrainStep(const v1::TrainStepHeader& header,
                                                  const std::optional<StepSamples>& samples);
  // Requires a valid request.
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

  // Every rank's reachability report, and its result as a member of a probe's group. Failed checks
  // are no error of the trainer.
  absl::StatusOr<diagnostics::v1::CheckReachResponse> CheckReach(
      const diagnostics::v1::CheckReachRequest& request);
  absl::StatusOr<diagnostics::v1::ProbeResults> ProbeGroup(
      const diagnostics::v1::ProbeGroupRequest& request);

  // Shows that all ranks are alive; called periodically while idle.
  absl::Status Heartbeat();
  // Waits for a checkpoint that is being written. Call before stopping the ranks.
  absl::Status FinishCheckpoint() { return SettleCheckpoint(/*wait=*/true); }

 private:
  absl::StatusOr<v1::TrainStepResponse> RunTrainStep(const v1::TrainStepHeader& header,
                                                     const std::optional<StepSamples>& samples);
  absl::StatusOr<v1::LoadCheckpointResponse> RunLoad(const v1::LoadCheckpointRequest& request);
  absl::StatusOr<v1::PublishWeightsResponse> RunPublish(const v1::PublishWeightsRequest& request);
  absl::Status CheckIncarnation(int64_t incarnation) const;
  // OK if the call retries the step identified by `known_run` and `known_digest`.
  static absl::Status CheckRepeat(const v1::TrainStepHeader& header, const std::string& digest,
                                  const std::string& known_run, const std::string& known_digest);
  // The owner of the rollouts that are published to.
  common::v1::WeightOwner OwnerOf(const v1::PublishWeightsRequest& request) const;
  // Sets this trainer's incarnation, then `earlier`; keeps at most kMaxIncarnations.
  void SetIncarnations(const google::protobuf::RepeatedField<int64_t>& earlier)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs the command on all ranks. An error of the team fails the trainer; a rank's error that is
  // not fatal is returned with the rank's name.
  absl::StatusOr<std::vector<RankResult>> RunOnRanks(Opcode opcode, std::string payload);
  absl::StatusOr<v1::LoadCheckpointResponse> LoadInitialState(
      const v1::LoadCheckpointRequest& request);
  // Whether the checkpoint that is being written is the one that the request asks for.
  bool HasBegun(const std::string& path, const v1::SaveCheckpointRequest& request) const;
  absl::Status BeginCheckpoint(const std::string& path, const std::string& driver_state);
  // Stores the outcome of the checkpoint being written, for the next response to report.
  absl::Status SettleCheckpoint(bool wait);
  std::optional<v1::CheckpointOutcome> TakeOutcome();

  const config::v1::RunConfig config_;
  const v1::GetModelInfoResponse model_info_;  // version and step as of the start
  TrainerEngine& engine_;
  RankTeam& team_;
  TrainerStatus& status_;
  CheckpointSaver saver_;
  const std::shared_ptr<TrainerMetrics> metrics_;
  std::optional<v1::CheckpointOutcome> outcome_;  // not yet reported
  bool holds_initial_state_ = true;               // no training or load since
  DriverLease lease_;
  RequestIds request_ids_;
  // The last load, by its request_id.
  std::string last_load_id_;
  v1::LoadCheckpointResponse last_load_;

  mutable absl::Mutex mu_;
  int64_t policy_version_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t running_step_ ABSL_GUARDED_BY(mu_) = 0;  // 0: none
  std::string running_run_ ABSL_GUARDED_BY(mu_);   // of the running step
  std::string running_digest_ ABSL_GUARDED_BY(mu_);
  // Incarnations whose samples are accepted: this one, and those whose checkpoints it continues.
  std::vector<int64_t> incarnations_ ABSL_GUARDED_BY(mu_);
  std::string driver_state_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::TrainStepResponse> last_response_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_LEADER_H_
