#include "services/trainer/algorithm/advantages.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "services/trainer/algorithm/discounted_returns.h"
#include "services/trainer/algorithm/gae_advantages.h"
#include "services/trainer/algorithm/grpo_advantages.h"
#include "services/trainer/algorithm/opo_advantages.h"
#include "services/trainer/algorithm/rloo_advantages.h"
#include "services/trainer/algorithm/whitening.h"

namespace tandem::trainer {
namespace {

// What the group estimators read of each sequence.
struct Outcomes {
  std::vector<double> rewards;
  std::vector<int64_t> lengths, groups;
};

Outcomes OutcomesOf(const TrainingBatch& batch) {
  Outcomes out;
  for (const Sequence& sequence : batch.sequences) {
    out.rewards.push_back(sequence.total_reward());
    out.lengths.push_back(static_cast<int64_t>(sequence.trained.size()));
    out.groups.push_back(sequence.group);
  }
  return out;
}

// One advantage for each sequence.
std::vector<double> OfSequences(const TrainingBatch& batch, const AdvantageOptions& options) {
  const Outcomes outcomes = OutcomesOf(batch);
  switch (options.estimator) {
    case AdvantageEstimator::kRloo:
      return RlooAdvantages(outcomes.rewards, outcomes.groups, batch.num_groups);
    case AdvantageEstimator::kOpo:
      return OpoAdvantages(outcomes.rewards, outcomes.lengths, outcomes.groups, batch.num_groups);
    case AdvantageEstimator::kReinforcePlusPlusBaseline:
      return GrpoAdvantages(outcomes.rewards, outcomes.groups, batch.num_groups,
                            /*divide_by_std=*/false);
    default:
      return GrpoAdvantages(outcomes.rewards, outcomes.groups, batch.num_groups,
                            options.divide_by_std);
  }
}

// One advantage for each trained-on token of a sequence, from its own rewards alone.
std::vector<double> OfTokens(Sequence& sequence, const AdvantageOptions& options) {
  if (options.estimator == AdvantageEstimator::kGae) {
    GaeAdvantages gae =
        GeneralizedAdvantages(sequence.values, sequence.token_rewards, options.gamma, options.lam);
    sequence.returns.assign(gae.returns.begin(), gae.returns.end());
    return std::move(gae.advantages);
  }
  if (options.estimator == AdvantageEstimator::kRemax) {
    std::vector<double> returns = DiscountedReturns(sequence.token_rewards, 1.0);
    for (double& value : returns) value -= sequence.baseline_reward.value_or(0.0);
    return returns;
  }
  return DiscountedReturns(sequence.token_rewards, options.gamma);
}

bool IsOfTokens(AdvantageEstimator estimator) {
  return estimator == AdvantageEstimator::kGae || estimator == AdvantageEstimator::kRemax ||
         estimator == AdvantageEstimator::kReinforcePlusPlus;
}

bool IsWhitened(AdvantageEstimator estimator) {
  return estimator == AdvantageEstimator::kGae ||
         estimator == AdvantageEstimator::kReinforcePlusPlus ||
         estimator == AdvantageEstimator::kReinforcePlusPlusBaseline;
}

}  // namespace

void SpreadRewards(TrainingBatch& batch) {
  for (Sequence& sequence : batch.sequences) {
    sequence.token_rewards.assign(sequence.trained.size(), 0.0);
    if (!sequence.trained.empty()) sequence.token_rewards.back() = sequence.reward;
  }
}

void AssignAdvantages(TrainingBatch& batch, const AdvantageOptions& options) {
  const bool of_tokens = IsOfTokens(options.estimator);
  std::vector<double> of_sequences;
  if (!of_tokens) of_sequences = OfSequences(batch, options);

  std::vector<size_t> without;  // advantages of their own
  std::vector<std::vector<double>> advantages;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    Sequence& sequence = batch.sequences[i];
    std::vector<double> own = of_tokens
                                  ? OfTokens(sequence, options)
                                  : std::vector<double>(sequence.trained.size(), of_sequences[i]);
    if (!sequence.advantages.empty()) continue;
    without.push_back(i);
    advantages.push_back(std::move(own));
  }
  if (IsWhitened(options.estimator)) Whiten(advantages);
  for (size_t i = 0; i < without.size(); ++i) {
    batch.sequences[without[i]].advantages.assign(advantages[i].begin(), advantages[i].end());
  }
}

}  // namespace tandem::trainer
