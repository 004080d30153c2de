// Corrects the mismatch between the policy that sampled a batch and the trainer's
// (algorithm.rollout_correction). With importance weights the loss uses three policies: it clips
// the ratio of the current policy to the one at the step's start, and weights it by the ratio of
// the latter to the one that sampled, as in decoupled PPO (2505.24298).
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

// Computes importance weights over all tokens, then drops the tokens that a rule rejects, in verl's
// order. Adds rollout_corr/* if the batch holds old_logprobs. With `bypass`, sets old_logprobs to
// the rollout's.
void CorrectRollout(TrainingBatch& batch, const RolloutCorrectionOptions& options,
                    Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_ROLLOUT_CORRECTION_H_
