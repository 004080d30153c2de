// TrainingStep: one step of training, from a batch to changed weights.
//
//   TrainingStep step(MakeTrainingStepOptions(config), policy, reference, optimizer, mesh);
//   ASSIGN_OR_RETURN(StepResult result, step.PolicyGradient(batch, learning_rate));
//
// Every rank calls it with the same batch and computes its share. Threads: the collective thread
// only. Errors are those of the collectives, after which the policy is unusable; the batch has been
// validated before (data/sample_validation.h).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/device_mesh.h"
#include "services/trainer/algorithm/kl_loss.h"
#include "services/trainer/algorithm/loss_aggregation.h"
#include "services/trainer/algorithm/policy_loss.h"
#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/micro_batch.h"
#include "services/trainer/data/training_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/adamw.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

struct TrainingStepOptions {
  bool divide_advantages_by_std = true;
  ClipOptions clip;
  LossAggregation aggregation = LossAggregation::kTokenMean;
  double loss_scale = 1.0;  // divisor of kSeqMeanTokenSumNorm
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  KlEstimator kl_estimator = KlEstimator::kK3;
  double entropy_coeff = 0.0;
  int64_t mini_batch_groups = 0;  // 0: the whole batch
  int64_t epochs = 1;
  // The ratio's denominator is the rollout's log-probs instead of the policy's at the step's start.
  bool rollout_logprobs_are_old = false;
  int64_t max_tokens_per_micro_batch = 4096;
};

// The configuration states every value (config::LoadRunConfig).
TrainingStepOptions MakeTrainingStepOptions(const config::v1::RunConfig& config);

struct StepResult {
  bool weights_changed = false;
  Metrics metrics;  // the same on every rank, times excepted
};

class TrainingStep {
 public:
  // All outlive it. `reference` is null where no KL loss is used. `mesh` is the policy's.
  TrainingStep(TrainingStepOptions options, ShardedModel& policy, ShardedModel* reference,
               AdamW& optimizer, const comm::DeviceMesh& mesh);

  // One optimizer step on the cross-entropy of the tokens that are trained on.
  absl::StatusOr<StepResult> Supervised(const TrainingBatch& batch, double learning_rate);

  // Epochs over mini-batches of groups, an optimizer step each.
  absl::StatusOr<StepResult> PolicyGradient(TrainingBatch batch, double learning_rate);

 private:
  // This rank's micro-batches of one optimizer step; as many on every rank.
  struct MiniBatch {
    std::vector<MicroBatch> micro_batches;
    double num_tokens = 0;  // trained on, over all ranks
  };

  // Mini-batches without a token to train on are left out. `groups_each` 0: one of the whole batch.
  std::vector<MiniBatch> SplitBatch(const TrainingBatch& batch, int64_t groups_each,
                                    LossAggregation aggregation) const;
  absl::Status ComputeOldLogProbs(std::vector<MiniBatch>& mini_batches, bool recompute,
                                  UpdateStatistics& statistics);
  absl::Status ComputeReferenceLogProbs(std::vector<MiniBatch>& mini_batches);
  // The loss of a micro-batch; its parts go to `statistics` times `share`.
  at::Tensor PolicyGradientLoss(const MicroBatch& micro_batch, const model::LogProbs& out,
                                double num_tokens, double share, bool compare_with_rollout,
                                UpdateStatistics& statistics) const;

  const TrainingStepOptions options_;
  ShardedModel& policy_;
  ShardedModel* const reference_;
  AdamW& optimizer_;
  const comm::DeviceMesh& mesh_;
  const at::Device device_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_H_
