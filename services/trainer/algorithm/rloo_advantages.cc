// Advantages of REINFORCE leave-one-out (2402.14740); verl's rloo.
#include <cstddef>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/group_baseline.h"

namespace tandem::trainer {
namespace {

// Reward - mean reward of the others of its group. In a group of one: the reward.
TokenAdvantages RlooAdvantages(TrainingBatch& batch, const AdvantageOptions&) {
  const GroupOutcomes of = OutcomesOf(batch);
  const std::vector<double> means = GroupMeans(of.rewards, of.groups, of.num_groups);
  const std::vector<int64_t> sizes = GroupSizes(of.groups, of.num_groups);
  std::vector<double> advantages(of.rewards.size());
  for (size_t i = 0; i < of.rewards.size(); ++i) {
    const auto n = static_cast<double>(sizes[of.groups[i]]);
    // r - (n mean - r) / (n - 1) = (r - mean) n / (n - 1)
    advantages[i] = n > 1 ? (of.rewards[i] - means[of.groups[i]]) * n / (n - 1) : of.rewards[i];
  }
  return SpreadOverTokens(batch, advantages);
}

}  // namespace

const AdvantageKind kRlooAdvantages = {.estimator = config::v1::ADV_ESTIMATOR_RLOO,
                                       .compute = RlooAdvantages,
                                       .compares_samples = true};

}  // namespace tandem::trainer
