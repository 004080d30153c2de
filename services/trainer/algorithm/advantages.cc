#include "services/trainer/algorithm/advantages.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include "services/trainer/algorithm/whitening.h"

namespace tandem::trainer {

const AdvantageKind* FindAdvantages(config::v1::AdvEstimator estimator) {
  static constexpr const AdvantageKind* kKinds[] = {
      &kGrpoAdvantages,
      &kRlooAdvantages,
      &kReinforcePlusPlusAdvantages,
      &kReinforcePlusPlusBaselineAdvantages,
      &kOpoAdvantages,
      &kRemaxAdvantages,
      &kGaeAdvantages,
      &kPassAtKAdvantages,
      &kGdpoAdvantages,
      &kOptimalTokenBaselineAdvantages,
      &kTirOptimalTokenBaselineAdvantages,
      &kGpgAdvantages,
  };
  for (const AdvantageKind* kind : kKinds) {
    if (kind->estimator == estimator) return kind;
  }
  return nullptr;
}

void SpreadRewards(TrainingBatch& batch) {
  for (Sequence& sequence : batch.sequences) {
    std::vector<double>& rewards = sequence.token_rewards;
    rewards.resize(sequence.trained.size(), 0.0);
    if (rewards.empty()) continue;
    rewards.back() += sequence.reward - std::accumulate(rewards.begin(), rewards.end(), 0.0);
  }
}

void AssignAdvantages(TrainingBatch& batch, const AdvantageOptions& options) {
  TokenAdvantages computed = options.kind->compute(batch, options);
  std::vector<size_t> without;  // advantages of their own
  TokenAdvantages advantages;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    if (!batch.sequences[i].advantages.empty()) continue;
    without.push_back(i);
    advantages.push_back(std::move(computed[i]));
  }
  if (options.kind->is_whitened) Whiten(advantages);
  for (size_t i = 0; i < without.size(); ++i) {
    batch.sequences[without[i]].advantages.assign(advantages[i].begin(), advantages[i].end());
  }
}

}  // namespace tandem::trainer
