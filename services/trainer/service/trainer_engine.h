// TrainerEngine: one rank's shards of the policy and, if used, of the frozen reference and the
// critic, with the optimizers and the training steps.
//
// Threads: the rank's collective thread. The methods are collective: every rank calls them in the
// same order with the same arguments. Errors of TrainStep() and ComputeLogProbs() leave the group
// unusable.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_ENGINE_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_ENGINE_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/device_mesh.h"
#include "common/model/model_spec.h"
#include "services/trainer/algorithm/critic.h"
#include "services/trainer/algorithm/preference_step.h"
#include "services/trainer/algorithm/training_step.h"
#include "services/trainer/checkpoint/checkpointed_model.h"
#include "services/trainer/data/training_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/optimizer.h"
#include "services/trainer/service/memory_metrics.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

class TrainerEngine {
 public:
  // What Create() refuses without the other ranks: settings that this trainer does not support,
  // folders of the policy or of the critic without a usable config.json or without its tensors,
  // frozen parameters that the model does not have. Reads no weights. Returns the policy's
  // specification.
  static absl::StatusOr<model::ModelSpec> CheckConfig(const config::v1::RunConfig& config);

  // Loads the configured model, or initializes it randomly. `mesh` outlives the engine and moves
  // tensors on `device`. Collective. Errors: those of the model's folder, naming file and tensor;
  // UNIMPLEMENTED for a setting that this trainer does not support.
  static absl::StatusOr<std::unique_ptr<TrainerEngine>> Create(const config::v1::RunConfig& config,
                                                               const comm::DeviceMesh& mesh,
                                                               at::Device device);

  const model::ModelSpec& spec() const { return policy_->transformer().spec(); }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  const comm::DeviceMesh& mesh() const { return mesh_; }
  ShardedModel& policy() { return *policy_; }
  // The policy's images on this rank; an error without a vision tower, or without the folder's
  // preprocessor_config.json, which a run without images does not need.
  const PixelsOrError& pixels() const { return pixels_; }

  // The contents of a checkpoint: the trained models, with their optimizers.
  std::vector<CheckpointedModel> checkpointed_models();
  // True if no earlier rank holds the same shards.
  bool writes_checkpoints() const { return mesh_.replicate().rank() == 0; }
  // True if the training state may exceed memory, so that it must not be copied there.
  bool rests_on_disk() const { return config_.trainer().offload() == config::v1::OFFLOAD_DISK; }
  // Algorithm state that outlives a step, by name. The same on every rank.
  std::map<std::string, double> AlgorithmScalars() const;
  // FAILED_PRECONDITION for names that this run's algorithm does not have.
  absl::Status SetAlgorithmScalars(const std::map<std::string, double>& scalars);

  // Restores models, optimizers and the algorithm's scalars to their state after Create(). An error
  // leaves a mix of old and new.
  absl::Status ResetToInitialState();

  // Runs a step by its header: `step`, from 1, of `total_steps` sets the learning rate. Adds to the step's own metrics
  // those of AddStepTimes() and perf/*_bytes (memory_metrics.h) of this rank. Rank 0 logs skipped
  // updates.
  absl::StatusOr<StepResult> TrainStep(const v1::TrainStepHeader& header, TrainingBatch batch);

  // For each sequence, one log-prob per trained token, under the policy or the reference, which the
  // first such call loads; the same on every rank.
  absl::StatusOr<std::vector<std::vector<float>>> ComputeLogProbs(const TrainingBatch& batch,
                                                                  bool of_reference = false);

 private:
  TrainerEngine(const config::v1::RunConfig& config, const comm::DeviceMesh& mesh,
                at::Device device);

  // Creates the reference if there is none yet: the policy as in model.path, frozen. Collective.
  absl::Status MakeReference();
  RankMemory Memory() const;
  absl::StatusOr<StepResult> RunObjective(const v1::TrainStepHeader& header, TrainingBatch batch);
  // Creates the value model, its optimizer and its part of the step. Collective.
  absl::Status MakeCritic();

  const config::v1::RunConfig config_;
  const comm::DeviceMesh& mesh_;
  const at::Device device_;
  at::ScalarType compute_dtype_;
  PixelsOrError pixels_ = absl::FailedPreconditionError("the model has no vision tower");
  ShardedModelOptions model_options_;  // of the policy
  std::unique_ptr<ShardedModel> policy_;
  std::unique_ptr<ShardedModel> reference_;  // null until something needs it
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TrainingStep> training_step_;
  std::unique_ptr<PreferenceStep> preference_step_;
  std::unique_ptr<ShardedModel> critic_;  // null unless algorithm.adv_estimator is gae
  std::unique_ptr<Optimizer> critic_optimizer_;
  std::unique_ptr<Critic> critic_part_;
  std::map<std::string, double> initial_scalars_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_ENGINE_H_
