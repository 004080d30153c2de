// TrainerLeader: the trainer as one thing: the counters of the run (step, policy version, the
// driver's state, the stored answer of the last step) and the operations that change them, each
// carried out by all ranks.
//
// One driver at a time: what changes something checks the driver's lease before anything else, also
// when its turn has come.
//
// Threads: the operations run on the collective thread, one at a time; CheckHeader(), CheckWrite(),
// GetModelInfo(), status() and the calls for the lease may be called from any. When a rank is lost
// the operation answers UNAVAILABLE naming it, the status turns to FAILED, and every later
// operation answers the same.
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

// The samples of a step that have arrived, and their digest.
struct StepSamples {
  std::vector<common::v1::Sample> samples;
  std::string digest;
};

class TrainerLeader {
 public:
  // `model_info` states what does not change: architecture, sizes, manifest, incarnation. `engine`
  // is this rank's, which `team` runs commands on; all three outlive the leader. `clock` is the
  // lease's.
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
  // Whether a call under `lease` may change something; see DriverLease. Advice, given early: the
  // operations check again when their turn comes.
  absl::Status CheckWrite(const v1::Lease& lease) { return lease_.CheckWrite(lease); }

  // What the first message of a step means. FAILED_PRECONDITION for a caller who does not hold the
  // lease, another incarnation (STALE_INCARNATION), another step than the next (STEP_OUT_OF_ORDER)
  // or a known step that differs (STEP_DIFFERS); INVALID_ARGUMENT for a header that is not
  // complete. Advice, given early: TrainStep() checks again when its turn comes.
  enum class HeaderMeaning {
    kRead,    // read the samples, then TrainStep()
    kRepeat,  // a known step, by the digest that the header states: TrainStep() without samples
              // answers it
  };
  absl::StatusOr<HeaderMeaning> CheckHeader(const v1::TrainStepHeader& header);

  // What samples of the objective must be like.
  SampleLimits LimitsFor(v1::Objective objective) const;

  // `samples` are valid and hold a token to train on; nullopt for a repeat.
  absl::StatusOr<v1::TrainStepResponse> TrainStep(const v1::TrainStepHeader& header,
                                                  const std::optional<StepSamples>& samples);
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
  absl::StatusOr<v1::TrainStepResponse> RunTrainStep(const v1::TrainStepHeader& header,
                                                     const std::optional<StepSamples>& samples);
  absl::StatusOr<v1::LoadCheckpointResponse> RunLoad(const v1::LoadCheckpointRequest& request);
  absl::StatusOr<v1::PublishWeightsResponse> RunPublish(const v1::PublishWeightsRequest& request);
  absl::Status CheckIncarnation(int64_t incarnation) const;
  // OK where a call is a repeat of the step that is known by `known`, a digest and its run's id.
  static absl::Status CheckRepeat(const v1::TrainStepHeader& header, const std::string& digest,
                                  const std::string& known_run, const std::string& known_digest);
  // Who the rollouts that are published to belong to.
  common::v1::WeightOwner OwnerOf(const v1::PublishWeightsRequest& request) const;
  // With its own incarnation first, and no more than are of use.
  void SetIncarnations(const google::protobuf::RepeatedField<int64_t>& earlier)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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
  DriverLease lease_;
  RequestIds request_ids_;
  // The load that was done last, by its request_id.
  std::string last_load_id_;
  v1::LoadCheckpointResponse last_load_;

  mutable absl::Mutex mu_;
  int64_t policy_version_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t running_step_ ABSL_GUARDED_BY(mu_) = 0;  // 0: none
  std::string running_run_ ABSL_GUARDED_BY(mu_);   // of the running step
  std::string running_digest_ ABSL_GUARDED_BY(mu_);
  // Whose samples are trained on: this one's, and those whose checkpoints it continues.
  std::vector<int64_t> incarnations_ ABSL_GUARDED_BY(mu_);
  std::string driver_state_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::TrainStepResponse> last_response_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_LEADER_H_
