// Helpers of estimators that compare the samples of one prompt.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_GROUP_BASELINE_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_GROUP_BASELINE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// The mean reward of each group. A group of one has nothing to compare with: its mean counts as 0,
// so that its advantage is its reward, as in verl. groups[i] in [0, num_groups).
std::vector<double> GroupMeans(absl::Span<const double> rewards, absl::Span<const int64_t> groups,
                               int64_t num_groups);

// The number of samples of each group.
std::vector<int64_t> GroupSizes(absl::Span<const int64_t> groups, int64_t num_groups);

// Inputs of such estimators, for each sequence of a batch.
struct GroupOutcomes {
  std::vector<double> rewards;   // total_reward()
  std::vector<int64_t> lengths;  // trained-on tokens
  std::vector<int64_t> groups;   // in [0, num_groups)
  int64_t num_groups = 0;
};
GroupOutcomes OutcomesOf(const TrainingBatch& batch);

// Gives each trained-on token the advantage of its sequence.
TokenAdvantages SpreadOverTokens(const TrainingBatch& batch, const std::vector<double>& advantages);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_GROUP_BASELINE_H_
