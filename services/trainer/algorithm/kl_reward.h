// KL penalty in the reward (algorithm.use_kl_in_reward): verl's apply_kl_penalty.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_KL_REWARD_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_KL_REWARD_H_

#include "services/trainer/algorithm/kl_loss.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// Subtracts coefficient * divergence from the token_rewards of every trained-on token, and stores
// the sum in kl_penalty. Needs old_logprobs, ref_logprobs and token_rewards. Returns the mean over
// sequences of the mean divergence of their tokens; 0 if no sequence has any.
double PenalizeDivergence(TrainingBatch& batch, KlEstimator estimator, double coefficient);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_KL_REWARD_H_
