// Advantages of ReMax (2310.10505): returns less the reward of the greedy completion; verl's remax.
#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/discounted_returns.h"

namespace tandem::trainer {

const AdvantageKind kRemaxAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_REMAX,
    .compute =
        [](TrainingBatch& batch, const AdvantageOptions&) {
          TokenAdvantages out;
          for (const Sequence& sequence : batch.sequences) {
            out.push_back(DiscountedReturns(sequence.token_rewards, /*gamma=*/1.0));
            for (double& value : out.back()) value -= sequence.baseline_reward.value_or(0.0);
          }
          return out;
        },
    .needs_baseline_reward = true,
};

}  // namespace tandem::trainer
