#include "services/trainer/algorithm/group_baseline.h"

#include <cstddef>

namespace tandem::trainer {

std::vector<int64_t> GroupSizes(absl::Span<const int64_t> groups, int64_t num_groups) {
  std::vector<int64_t> sizes(num_groups, 0);
  for (int64_t group : groups) ++sizes[group];
  return sizes;
}

std::vector<double> GroupMeans(absl::Span<const double> rewards, absl::Span<const int64_t> groups,
                               int64_t num_groups) {
  const std::vector<int64_t> sizes = GroupSizes(groups, num_groups);
  std::vector<double> means(num_groups, 0.0);
  for (size_t i = 0; i < rewards.size(); ++i) means[groups[i]] += rewards[i];
  for (int64_t g = 0; g < num_groups; ++g) {
    means[g] = sizes[g] > 1 ? means[g] / static_cast<double>(sizes[g]) : 0.0;
  }
  return means;
}

GroupOutcomes OutcomesOf(const TrainingBatch& batch) {
  GroupOutcomes out;
  out.num_groups = batch.num_groups;
  for (const Sequence& sequence : batch.sequences) {
    out.rewards.push_back(sequence.total_reward());
    out.lengths.push_back(static_cast<int64_t>(sequence.trained.size()));
    out.groups.push_back(sequence.group);
  }
  return out;
}

TokenAdvantages SpreadOverTokens(const TrainingBatch& batch,
                                 const std::vector<double>& advantages) {
  TokenAdvantages out;
  for (size_t i = 0; i < advantages.size(); ++i) {
    out.emplace_back(batch.sequences[i].trained.size(), advantages[i]);
  }
  return out;
}

}  // namespace tandem::trainer
