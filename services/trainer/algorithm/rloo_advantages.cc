#include "services/trainer/algorithm/rloo_advantages.h"

#include <cstddef>

#include "services/trainer/algorithm/group_baseline.h"

namespace tandem::trainer {

std::vector<double> RlooAdvantages(absl::Span<const double> rewards,
                                   absl::Span<const int64_t> groups, int64_t num_groups) {
  const std::vector<double> means = GroupMeans(rewards, groups, num_groups);
  const std::vector<int64_t> sizes = GroupSizes(groups, num_groups);
  std::vector<double> advantages(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    const auto n = static_cast<double>(sizes[groups[i]]);
    // r - (n mean - r) / (n - 1) = (r - mean) n / (n - 1)
    advantages[i] = n > 1 ? (rewards[i] - means[groups[i]]) * n / (n - 1) : rewards[i];
  }
  return advantages;
}

}  // namespace tandem::trainer
