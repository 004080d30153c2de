// Advantages that train for the best of a group (pass@k policy optimisation, 2503.19595); verl's
// grpo_passk.
#include <algorithm>
#include <cstddef>
#include <limits>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/group_baseline.h"
#include "services/trainer/algorithm/grpo_advantages.h"

namespace tandem::trainer {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// The best sample of a group (the first of equals) has its reward less that of the second best,
// divided by the group's standard deviation + 1e-6 if `divide_by_std`; the others have 0. A group of
// one has nothing to compare with: 0.
TokenAdvantages PassAtKAdvantages(TrainingBatch& batch, const AdvantageOptions& options) {
  const GroupOutcomes of = OutcomesOf(batch);
  std::vector<double> best(of.num_groups, kNone), second(of.num_groups, kNone);
  std::vector<size_t> winner(of.num_groups, 0);
  for (size_t i = 0; i < of.rewards.size(); ++i) {
    const int64_t g = of.groups[i];
    if (of.rewards[i] > best[g]) {
      second[g] = best[g];
      best[g] = of.rewards[i];
      winner[g] = i;
    } else {
      second[g] = std::max(second[g], of.rewards[i]);
    }
  }
  const std::vector<double> deviations = GroupDeviations(of.rewards, of.groups, of.num_groups);
  const std::vector<int64_t> sizes = GroupSizes(of.groups, of.num_groups);
  std::vector<double> advantages(of.rewards.size(), 0.0);
  for (int64_t g = 0; g < of.num_groups; ++g) {
    if (sizes[g] < 2) continue;
    advantages[winner[g]] =
        (best[g] - second[g]) / (options.divide_by_std ? deviations[g] + kDeviationEps : 1.0);
  }
  return SpreadOverTokens(batch, advantages);
}

}  // namespace

const AdvantageKind kPassAtKAdvantages = {.estimator = config::v1::ADV_ESTIMATOR_GRPO_PASSK,
                                          .compute = PassAtKAdvantages,
                                          .compares_samples = true};

}  // namespace tandem::trainer
