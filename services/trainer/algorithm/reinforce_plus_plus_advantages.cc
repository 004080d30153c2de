// Advantages of REINFORCE++ and of REINFORCE++-baseline (2501.03262), both whitened over the batch;
// verl's reinforce_plus_plus and reinforce_plus_plus_baseline.
#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/discounted_returns.h"
#include "services/trainer/algorithm/group_baseline.h"
#include "services/trainer/algorithm/grpo_advantages.h"

namespace tandem::trainer {

// Discounted returns.
const AdvantageKind kReinforcePlusPlusAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_REINFORCE_PLUS_PLUS,
    .compute =
        [](TrainingBatch& batch, const AdvantageOptions& options) {
          TokenAdvantages out;
          for (const Sequence& sequence : batch.sequences) {
            out.push_back(DiscountedReturns(sequence.token_rewards, options.gamma));
          }
          return out;
        },
    .is_whitened = true,
};

// Reward - mean of the group.
const AdvantageKind kReinforcePlusPlusBaselineAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_REINFORCE_PLUS_PLUS_BASELINE,
    .compute =
        [](TrainingBatch& batch, const AdvantageOptions&) {
          const GroupOutcomes of = OutcomesOf(batch);
          return SpreadOverTokens(batch, GrpoAdvantages(of.rewards, of.groups, of.num_groups,
                                                        /*divide_by_std=*/false));
        },
    .compares_samples = true,
    .is_whitened = true,
};

}  // namespace tandem::trainer
