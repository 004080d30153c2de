// Correction of the mismatch between the policy that sampled a batch and the trainer's
// (algorithm.rollout_correction). With importance weights the loss knows three policies: the
// present one over the one at the step's start is clipped, and the latter over the one that sampled
// is the weight, as in decoupled PPO (2505.24298).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_ROLLOUT_CORRECTION_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_ROLLOUT_CORRECTION_H_

#include <vector>

#include "common/config/rollout_correction_spec.h"
#include "services/trainer/algorithm/importance_weights.h"
#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

struct RolloutCorrectionOptions {
  ImportanceWeightOptions weights;
  std::vector<config::RejectionRule> rules;
  // The ratio's denominator is the policy that sampled, not the trainer's at the step's start.
  bool bypass = false;

  // Whether it needs the trainer's log-probs at the step's start.
  bool compares() const { return weights.level != RolloutIs::kNone || !rules.empty(); }
};

// Weighs the tokens, then takes those away that a rule refuses, as verl does: weights are of all
// tokens. Where the batch holds old_logprobs, adds rollout_corr/*. With `bypass`, old_logprobs are
// the rollout's afterwards.
void CorrectRollout(TrainingBatch& batch, const RolloutCorrectionOptions& options,
                    Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_ROLLOUT_CORRECTION_H_
