// How rewards become advantages: the choice of algorithm.adv_estimator.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_

#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

enum class AdvantageEstimator {
  kGrpo,                       // grpo_advantages.h
  kRloo,                       // rloo_advantages.h
  kReinforcePlusPlus,          // discounted_returns.h, whitened
  kReinforcePlusPlusBaseline,  // less the group's mean, whitened
  kOpo,                        // opo_advantages.h
  kRemax,                      // discounted_returns.h, less the greedy completion's reward
  kGae,                        // gae_advantages.h, whitened
};

struct AdvantageOptions {
  AdvantageEstimator estimator = AdvantageEstimator::kGrpo;
  bool divide_by_std = true;  // grpo's
  double gamma = 1.0;         // of reinforce_plus_plus and gae
  double lam = 1.0;           // of gae
};

// Puts the reward of each completion on its last trained-on token: `token_rewards`.
void SpreadRewards(TrainingBatch& batch);

// Gives every trained-on token its advantage, from total_reward() and token_rewards, after
// SpreadRewards(). Sequences that came with advantages of their own keep these; their rewards still
// count in their group, and they take no part in whitening. kRemax wants baseline_reward, kGae
// wants values and sets returns.
void AssignAdvantages(TrainingBatch& batch, const AdvantageOptions& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_
