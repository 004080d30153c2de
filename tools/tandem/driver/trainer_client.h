// TrainerClient: the driver's client of the trainer service.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_TRAINER_CLIENT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_TRAINER_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"
#include "tools/tandem/driver/lease_keeper.h"
#include "tools/tandem/driver/prompt_image.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {

// ErrorInfo reason of a PublishWeights that the trainer itself failed: the trainer works, but no
// replica got the version.
inline constexpr char kPublishedToNobody[] = "PUBLISHED_TO_NOBODY";

// Every call blocks the calling thread until its response or deadline. Thread-safe, except
// AcquireLease() and ReleaseLease(). Calls that change state carry the lease, if there is one, and
// fail at once when it is lost. Validates the versions that the trainer returns.
class TrainerClient {
 public:
  TrainerClient(std::string address, absl::Duration step_timeout, absl::Duration update_timeout);

  // Makes this process the trainer's driver until ReleaseLease() or destruction. Errors name the
  // current driver.
  absl::Status AcquireLease(LeaseOptions options);
  // First calls `while_held`, which may be null, if the lease is still held (LeaseKeeper::End).
  void ReleaseLease(const std::function<void()>& while_held = nullptr);
  // FAILED_PRECONDITION (LEASE_LOST) once the trainer has reported the loss; OK without a lease.
  absl::Status LeaseStatus() const;
  // Incarnation of the driven trainer; 0 without a lease.
  int64_t incarnation() const { return lease_ == nullptr ? 0 : lease_->incarnation(); }
  // Id of the run that holds the lease; empty without a lease.
  std::string run_id() const { return lease_ == nullptr ? "" : lease_->lease().run_id(); }

  absl::StatusOr<trainer::v1::GetModelInfoResponse> GetModelInfo();

  // Streams a header and the samples, and of `images` those that samples name, each before the first
  // that does. `total_steps`: those of the run, for the schedule of the learning rate; 0: as the
  // trainer is configured.
  absl::StatusOr<trainer::v1::TrainStepResponse> TrainStep(
      int64_t step, trainer::v1::Objective objective,
      const std::vector<common::v1::Sample>& samples, int64_t total_steps = 0,
      const StepImages& images = {});

  // Lets PublishWeights() take replicas that belong to another run, with or without a lease.
  void TakeOverReplicas() { takes_replicas_over_ = true; }

  // Publishes to the fleet's current replicas and tells the fleet which have the version.
  absl::StatusOr<trainer::v1::PublishWeightsResponse> PublishWeights(RolloutFleet& fleet);
  absl::StatusOr<trainer::v1::PublishWeightsResponse> PublishWeights(
      const std::vector<trainer::v1::RolloutReplica>& replicas);

  // Has the trainer compute the digests of its current weights.
  absl::StatusOr<trainer::v1::GetWeightDigestsResponse> GetWeightDigests();

  absl::StatusOr<trainer::v1::ComputeLogProbsResponse> ComputeLogProbs(
      const trainer::v1::ComputeLogProbsRequest& request);

  absl::StatusOr<trainer::v1::SaveCheckpointResponse> SaveCheckpoint(
      const std::string& path, trainer::v1::CheckpointFormat format);

  // When SaveSharded() returns: once the ranks have copied their shards, which they write while
  // training continues; or once the checkpoint is written.
  enum class SaveUntil { kCopied, kWritten };
  absl::StatusOr<trainer::v1::SaveCheckpointResponse> SaveSharded(const std::string& path,
                                                                  std::string driver_state,
                                                                  SaveUntil until);

  absl::StatusOr<trainer::v1::LoadCheckpointResponse> LoadCheckpoint(const std::string& path,
                                                                     int64_t min_policy_version);

  // Restores the trainer's initial state.
  absl::StatusOr<trainer::v1::LoadCheckpointResponse> LoadInitialState(int64_t min_policy_version);

  const std::string& address() const { return address_; }

 private:
  absl::StatusOr<trainer::v1::SaveCheckpointResponse> Save(
      const trainer::v1::SaveCheckpointRequest& request);
  absl::StatusOr<trainer::v1::LoadCheckpointResponse> Load(
      trainer::v1::LoadCheckpointRequest request);
  // The lease, for a request; empty if there is none.
  trainer::v1::Lease lease() const;
  // Validates a version that the trainer returned.
  absl::Status CheckVersion(int64_t version) const;
  // Adds the trainer's name to an error.
  absl::Status Named(const grpc::Status& status) const;

  const std::string address_;
  const absl::Duration step_timeout_;
  const absl::Duration update_timeout_;
  bool takes_replicas_over_ = false;
  std::unique_ptr<trainer::v1::TrainerService::Stub> stub_;
  std::unique_ptr<LeaseKeeper> lease_;  // null: none; uses the stub
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_TRAINER_CLIENT_H_
