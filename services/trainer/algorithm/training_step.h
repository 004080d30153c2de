// TrainingStep: one step of training, from a batch to changed weights.
//
//   TrainingStep step(MakeTrainingStepOptions(config), policy, reference, optimizer, mesh);
//   ASSIGN_OR_RETURN(StepResult result, step.PolicyGradient(batch, learning_rate));
//
// Every rank calls it with the same batch and computes its share. Per-token data (log-probs,
// rewards, advantages) is gathered on every rank, so that all make the same decisions. Threads: the
// collective thread only. Errors are those of the collectives, after which the policy is unusable.
// The caller has validated the batch (data/sample_validation.h); a batch without a token to train
// on is INVALID_ARGUMENT.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/comm/device_mesh.h"
#include "services/trainer/algorithm/critic.h"
#include "services/trainer/algorithm/kl_controller.h"
#include "services/trainer/algorithm/mini_batch.h"
#include "services/trainer/algorithm/policy_objective.h"
#include "services/trainer/algorithm/training_step_options.h"
#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/optimizer.h"

namespace tandem::trainer {

struct StepResult {
  bool weights_changed = false;
  Metrics metrics;  // the same on every rank, except times
  // Causes of skipped updates (Optimizer::StepResult::cause), in order.
  std::vector<std::string> skipped;
};

// The critic's part in a policy-gradient step.
struct CriticTurn {
  Critic* critic = nullptr;  // null: no critic
  double learning_rate = 0;
  bool policy_waits = false;  // only the critic learns: its warm-up
};

class TrainingStep {
 public:
  // Models, optimizer and mesh outlive it. `reference` is null if the options do not need it.
  // `mesh` is the policy's.
  TrainingStep(TrainingStepOptions options, ShardedModel& policy, ShardedModel* reference,
               Optimizer& optimizer, const comm::DeviceMesh& mesh);

  // One optimizer step on the cross-entropy of the trained-on tokens.
  absl::StatusOr<StepResult> Supervised(const TrainingBatch& batch, double learning_rate);

  // Runs epochs over mini-batches of groups, with an optimizer step each. The estimator kGae needs
  // a critic, which predicts its values first and learns from the returns before the policy does.
  absl::StatusOr<StepResult> PolicyGradient(TrainingBatch batch, double learning_rate,
                                            const CriticTurn& turn = {});

  // The weight of the KL penalty in rewards. An adaptive controller changes it from step to step;
  // checkpoints save it.
  double kl_coefficient() const { return kl_controller_.coefficient(); }
  void set_kl_coefficient(double coefficient) { kl_controller_.set_coefficient(coefficient); }

 private:
  // Results of the updates of a step.
  struct Updates {
    int64_t count = 0;
    std::vector<std::string> skipped;  // their causes
    double grad_norm_sum = 0;
    bool weights_changed() const { return static_cast<int64_t>(skipped.size()) < count; }
  };

  // Computes log-probs under the start policy and the reference, as needed.
  absl::Status ScoreBatch(TrainingBatch& batch, Metrics& metrics);
  absl::StatusOr<std::vector<std::vector<float>>> LogProbsOf(ShardedModel& model,
                                                             const TrainingBatch& batch) const;
  // Entropies of the current policy.
  // Log-probs and sums of squared probabilities under the policy.
  absl::StatusOr<std::vector<std::vector<std::vector<float>>>> LogProbsAndSquaresOf(
      const TrainingBatch& batch) const;
  absl::StatusOr<std::vector<std::vector<float>>> EntropiesOf(const TrainingBatch& batch) const;
  // Computes rewards, divergence, correction and advantages.
  void AssessBatch(TrainingBatch& batch, Metrics& metrics);
  absl::StatusOr<Updates> UpdatePolicy(const std::vector<MiniBatch>& mini_batches,
                                       double learning_rate, bool compare_with_rollout,
                                       UpdateStatistics& statistics);

  // Updates the weights and moves what the load of experts moves.
  absl::StatusOr<Optimizer::StepResult> UpdateWeights(double learning_rate);

  TrainingStepOptions options_;
  const PolicyObjective objective_;
  KlController kl_controller_;
  ShardedModel& policy_;
  ShardedModel* const reference_;
  Optimizer& optimizer_;
  const comm::DeviceMesh& mesh_;
  const at::Device device_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_H_
