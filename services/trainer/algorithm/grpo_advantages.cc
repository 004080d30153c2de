#include "services/trainer/algorithm/grpo_advantages.h"

#include <cmath>
#include <cstddef>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/group_baseline.h"

namespace tandem::trainer {

std::vector<double> GroupDeviations(absl::Span<const double> rewards,
                                    absl::Span<const int64_t> groups, int64_t num_groups) {
  const std::vector<double> means = GroupMeans(rewards, groups, num_groups);
  // Squares of deviations from the mean: with a difference of sums of squares, rounding would make
  // equal rewards look different.
  std::vector<double> out(num_groups, 0.0);
  for (size_t i = 0; i < rewards.size(); ++i) {
    const double difference = rewards[i] - means[groups[i]];
    out[groups[i]] += difference * difference;
  }
  const std::vector<int64_t> sizes = GroupSizes(groups, num_groups);
  for (int64_t g = 0; g < num_groups; ++g) {
    out[g] = sizes[g] > 1 ? std::sqrt(out[g] / static_cast<double>(sizes[g] - 1)) : 1.0;
  }
  return out;
}

std::vector<double> GrpoAdvantages(absl::Span<const double> rewards,
                                   absl::Span<const int64_t> groups, int64_t num_groups,
                                   bool divide_by_std) {
  const std::vector<double> means = GroupMeans(rewards, groups, num_groups);
  std::vector<double> advantages(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) advantages[i] = rewards[i] - means[groups[i]];
  if (!divide_by_std) return advantages;
  const std::vector<double> deviations = GroupDeviations(rewards, groups, num_groups);
  for (size_t i = 0; i < rewards.size(); ++i) {
    advantages[i] /= deviations[groups[i]] + kDeviationEps;
  }
  return advantages;
}

const AdvantageKind kGrpoAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_GRPO,
    .compute =
        [](TrainingBatch& batch, const AdvantageOptions& options) {
          const GroupOutcomes of = OutcomesOf(batch);
          return SpreadOverTokens(
              batch, GrpoAdvantages(of.rewards, of.groups, of.num_groups, options.divide_by_std));
        },
    .compares_samples = true,
};

}  // namespace tandem::trainer
