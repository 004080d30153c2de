#include "services/trainer/algorithm/advantages.h"

#include <cmath>
#include <cstddef>

namespace tandem::trainer {
namespace {

constexpr double kEps = 1e-6;

struct GroupStatistics {
  double sum = 0;
  double squares = 0;  // of the deviations from the mean
  int64_t count = 0;

  double mean() const { return count > 1 ? sum / static_cast<double>(count) : 0.0; }
  double std() const {
    return count > 1 ? std::sqrt(squares / static_cast<double>(count - 1)) : 1.0;
  }
};

}  // namespace

std::vector<double> GroupAdvantages(absl::Span<const double> rewards,
                                    absl::Span<const int64_t> groups, int64_t num_groups,
                                    bool divide_by_std) {
  std::vector<GroupStatistics> statistics(num_groups);
  for (size_t i = 0; i < rewards.size(); ++i) {
    statistics[groups[i]].sum += rewards[i];
    ++statistics[groups[i]].count;
  }
  // A second pass: the difference of sums of squares loses equal rewards in rounding.
  for (size_t i = 0; i < rewards.size(); ++i) {
    GroupStatistics& group = statistics[groups[i]];
    const double deviation = rewards[i] - group.mean();
    group.squares += deviation * deviation;
  }
  std::vector<double> advantages(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    const GroupStatistics& group = statistics[groups[i]];
    advantages[i] = rewards[i] - group.mean();
    if (divide_by_std) advantages[i] /= group.std() + kEps;
  }
  return advantages;
}

void AssignAdvantages(TrainingBatch& batch, bool divide_by_std) {
  std::vector<double> rewards;
  std::vector<int64_t> groups;
  for (const Sequence& sequence : batch.sequences) {
    rewards.push_back(sequence.reward);
    groups.push_back(sequence.group);
  }
  const std::vector<double> advantages =
      GroupAdvantages(rewards, groups, batch.num_groups, divide_by_std);
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    Sequence& sequence = batch.sequences[i];
    if (!sequence.advantages.empty()) continue;
    sequence.advantages.assign(sequence.trained.size(), static_cast<float>(advantages[i]));
  }
}

}  // namespace tandem::trainer
