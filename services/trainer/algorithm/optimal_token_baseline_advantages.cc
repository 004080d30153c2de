// Advantages with the optimal baseline of every token (2602.07078); verl's optimal_token_baseline
// and tir_optimal_token_baseline.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/discounted_returns.h"

namespace tandem::trainer {
namespace {

constexpr double kEps = 1e-8;

// Where a token stands among those that it is compared with.
enum class Column {
  kOfCompletion,  // counted from the first sampled token, those of the environment too
  kOfTrained,     // trained-on tokens only, so that turns of unequal length are compared
};

struct TokenTerms {
  std::vector<double> returns;  // to go, from each trained-on token
  std::vector<double> weights;  // see BaselineWeights()
  std::vector<int64_t> columns;
  int64_t end() const { return columns.empty() ? 0 : columns.back() + 1; }
};

// The sum up to each token of the squared norm of its log-prob's gradient in the logits,
// 1 - 2 pi + sum of the squared probabilities, times the square of its importance weight: the
// variance that the tokens up to it add to the gradient.
std::vector<double> BaselineWeights(const Sequence& sequence) {
  std::vector<double> out;
  double sum = 0;
  for (size_t t = 0; t < sequence.trained.size(); ++t) {
    const double squares = sequence.sum_pi_squared[t];
    double term = 1.0 - 2.0 * std::exp(static_cast<double>(sequence.old_logprobs[t])) + squares;
    if (!sequence.importance_weights.empty()) {
      const double weight = sequence.importance_weights[t];
      term *= weight * weight;
    }
    sum += term;
    out.push_back(sum);
  }
  return out;
}

TokenTerms TermsOf(const Sequence& sequence, Column column) {
  TokenTerms out;
  out.returns = DiscountedReturns(sequence.token_rewards, /*gamma=*/1.0);
  out.weights = BaselineWeights(sequence);
  for (size_t t = 0; t < sequence.trained.size(); ++t) {
    out.columns.push_back(column == Column::kOfTrained
                              ? static_cast<int64_t>(t)
                              : sequence.trained[t] - sequence.prompt_tokens);
  }
  return out;
}

// Subtracts from each return the mean of the group's returns in its column, by weight. Where only the
// longest completion is left there is nothing to compare with, and in a group of one: no baseline.
void SubtractBaselines(const std::vector<TokenTerms*>& group) {
  int64_t longest = 0, second = 0;
  for (const TokenTerms* terms : group) {
    second = std::max(second, std::min(longest, terms->end()));
    longest = std::max(longest, terms->end());
  }
  std::vector<double> weighted(static_cast<size_t>(second), 0.0);
  std::vector<double> total(static_cast<size_t>(second), kEps);
  const auto for_each_token = [&](const auto& visit) {
    for (TokenTerms* terms : group) {
      for (size_t t = 0; t < terms->columns.size() && terms->columns[t] < second; ++t) {
        visit(*terms, t, static_cast<size_t>(terms->columns[t]));
      }
    }
  };
  for_each_token([&](const TokenTerms& terms, size_t t, size_t column) {
    weighted[column] += terms.returns[t] * terms.weights[t];
    total[column] += terms.weights[t];
  });
  for_each_token([&](TokenTerms& terms, size_t t, size_t column) {
    terms.returns[t] -= weighted[column] / total[column];
  });
}

TokenAdvantages Advantages(const TrainingBatch& batch, Column column) {
  std::vector<TokenTerms> terms;
  for (const Sequence& sequence : batch.sequences) terms.push_back(TermsOf(sequence, column));
  std::vector<std::vector<TokenTerms*>> groups(static_cast<size_t>(batch.num_groups));
  for (size_t i = 0; i < terms.size(); ++i) {
    groups[static_cast<size_t>(batch.sequences[i].group)].push_back(&terms[i]);
  }
  for (const std::vector<TokenTerms*>& group : groups) SubtractBaselines(group);
  TokenAdvantages out;
  for (TokenTerms& of_sequence : terms) out.push_back(std::move(of_sequence.returns));
  return out;
}

}  // namespace

const AdvantageKind kOptimalTokenBaselineAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_OPTIMAL_TOKEN_BASELINE,
    .compute = [](TrainingBatch& batch,
                  const AdvantageOptions&) { return Advantages(batch, Column::kOfCompletion); },
    .compares_samples = true,
    .needs_sum_pi_squared = true,
};

const AdvantageKind kTirOptimalTokenBaselineAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_TIR_OPTIMAL_TOKEN_BASELINE,
    .compute = [](TrainingBatch& batch,
                  const AdvantageOptions&) { return Advantages(batch, Column::kOfTrained); },
    .compares_samples = true,
    .needs_sum_pi_squared = true,
};

}  // namespace tandem::trainer
