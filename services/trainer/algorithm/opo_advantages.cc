#include "services/trainer/algorithm/opo_advantages.h"

#include <cstddef>

#include "services/trainer/algorithm/group_baseline.h"

namespace tandem::trainer {

std::vector<double> OpoAdvantages(absl::Span<const double> rewards,
                                  absl::Span<const int64_t> lengths,
                                  absl::Span<const int64_t> groups, int64_t num_groups) {
  const std::vector<int64_t> sizes = GroupSizes(groups, num_groups);
  std::vector<double> weighted(num_groups, 0.0);
  std::vector<double> total(num_groups, 0.0);
  for (size_t i = 0; i < rewards.size(); ++i) {
    weighted[groups[i]] += static_cast<double>(lengths[i]) * rewards[i];
    total[groups[i]] += static_cast<double>(lengths[i]);
  }
  std::vector<double> advantages(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    const int64_t g = groups[i];
    const double baseline = sizes[g] > 1 && total[g] > 0 ? weighted[g] / total[g] : 0.0;
    advantages[i] = rewards[i] - baseline;
  }
  return advantages;
}

}  // namespace tandem::trainer
