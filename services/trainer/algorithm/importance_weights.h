// Truncated or masked importance weights of a batch, which correct the mismatch between the
// rollout's policy and the trainer's: verl's rollout_is. Token: TIS
// (https://fengyao.notion.site/off-policy-rl), IcePop (2510.18855) and, as the third policy of
// decoupled PPO, AReaL (2505.24298); sequence: https://richardli.xyz/rl-collapse.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_IMPORTANCE_WEIGHTS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_IMPORTANCE_WEIGHTS_H_

#include "common/config/rollout_correction_spec.h"
#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

enum class RolloutIs { kNone, kToken, kSequence };

struct ImportanceWeightOptions {
  RolloutIs level = RolloutIs::kNone;
  config::WeightBounds bounds;
  bool batch_normalize = false;
};

// Sets importance_weights of every sequence: exp(clamp(log pi_old - log pi_rollout, -20, 20)) of
// the token, or of the sum over the sequence, then bounded; with batch_normalize, divided by the
// mean over tokens (kToken) or sequences (kSequence). Constants: no gradient flows through them.
// Adds rollout_corr/rollout_is_*. Needs old_logprobs and rollout_logprobs.
void AssignImportanceWeights(TrainingBatch& batch, const ImportanceWeightOptions& options,
                             Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_IMPORTANCE_WEIGHTS_H_
