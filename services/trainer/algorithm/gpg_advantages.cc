// Advantages of group policy gradient (2504.02546); verl's gpg. They go with the loss of that name.
#include <algorithm>
#include <cstddef>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/group_baseline.h"

namespace tandem::trainer {
namespace {

// (reward - group mean) times the batch's size over the number of its samples with a reward: samples
// that earn nothing then leave the size of the step as it is.
TokenAdvantages GpgAdvantages(TrainingBatch& batch, const AdvantageOptions&) {
  const GroupOutcomes of = OutcomesOf(batch);
  const auto num_rewarded = std::count_if(of.rewards.begin(), of.rewards.end(),
                                          [](double reward) { return reward != 0; });
  const double scale = static_cast<double>(of.rewards.size()) /
                       static_cast<double>(std::max<std::ptrdiff_t>(1, num_rewarded));
  const std::vector<double> means = GroupMeans(of.rewards, of.groups, of.num_groups);
  std::vector<double> advantages(of.rewards.size());
  for (size_t i = 0; i < of.rewards.size(); ++i) {
    advantages[i] = scale * (of.rewards[i] - means[of.groups[i]]);
  }
  return SpreadOverTokens(batch, advantages);
}

}  // namespace

const AdvantageKind kGpgAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_GPG, .compute = GpgAdvantages, .compares_samples = true};

}  // namespace tandem::trainer
