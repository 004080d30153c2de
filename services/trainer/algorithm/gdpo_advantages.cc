// Advantages of group reward-decoupled normalisation for several rewards (GDPO, 2601.05242); verl's
// gdpo.
#include <cstddef>
#include <vector>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/group_baseline.h"
#include "services/trainer/algorithm/grpo_advantages.h"

namespace tandem::trainer {
namespace {

// The sum over the rewards k of weight_k * (reward_k - mean of the group) / (standard deviation of
// the group + 1e-6), without the division if not `divide_by_std`. GRPO, which normalises the sum,
// gives completions of different merits equal advantages when their sums are equal, and the reward
// of the largest spread drowns the others.
TokenAdvantages GdpoAdvantages(TrainingBatch& batch, const AdvantageOptions& options) {
  const GroupOutcomes of = OutcomesOf(batch);
  std::vector<double> advantages(batch.sequences.size(), 0.0);
  if (batch.sequences.empty()) return {};
  const std::vector<RewardPart>& parts = batch.sequences.front().reward_parts;  // of all of them
  for (size_t k = 0; k < parts.size(); ++k) {
    std::vector<double> rewards;
    for (const Sequence& sequence : batch.sequences) {
      rewards.push_back(sequence.reward_parts[k].value);
    }
    const std::vector<double> normalized =
        GrpoAdvantages(rewards, of.groups, of.num_groups, options.divide_by_std);
    for (size_t i = 0; i < advantages.size(); ++i) {
      advantages[i] += parts[k].weight * normalized[i];
    }
  }
  return SpreadOverTokens(batch, advantages);
}

}  // namespace

const AdvantageKind kGdpoAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_GDPO,
    .compute = GdpoAdvantages,
    .compares_samples = true,
    .is_whitened = true,
    .needs_reward_parts = true,
};

}  // namespace tandem::trainer
