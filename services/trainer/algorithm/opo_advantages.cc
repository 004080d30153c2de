// Advantages of on-policy optimisation with the optimal baseline (OPO, 2505.23585); verl's opo.
#include <cstddef>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/group_baseline.h"

namespace tandem::trainer {
namespace {

// Reward - sum of length * reward of the group / sum of its lengths: long completions, whose
// gradients are larger, count more in the baseline. In a group of one, or without any token: the
// reward.
TokenAdvantages OpoAdvantages(TrainingBatch& batch, const AdvantageOptions&) {
  const GroupOutcomes of = OutcomesOf(batch);
  const std::vector<int64_t> sizes = GroupSizes(of.groups, of.num_groups);
  std::vector<double> weighted(of.num_groups, 0.0);
  std::vector<double> total(of.num_groups, 0.0);
  for (size_t i = 0; i < of.rewards.size(); ++i) {
    weighted[of.groups[i]] += static_cast<double>(of.lengths[i]) * of.rewards[i];
    total[of.groups[i]] += static_cast<double>(of.lengths[i]);
  }
  std::vector<double> advantages(of.rewards.size());
  for (size_t i = 0; i < of.rewards.size(); ++i) {
    const int64_t g = of.groups[i];
    const double baseline = sizes[g] > 1 && total[g] > 0 ? weighted[g] / total[g] : 0.0;
    advantages[i] = of.rewards[i] - baseline;
  }
  return SpreadOverTokens(batch, advantages);
}

}  // namespace

const AdvantageKind kOpoAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_OPO, .compute = OpoAdvantages, .compares_samples = true};

}  // namespace tandem::trainer
