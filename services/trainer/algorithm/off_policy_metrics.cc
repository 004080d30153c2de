#include "services/trainer/algorithm/off_policy_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

namespace tandem::trainer {
namespace {

bool HasBoth(const Sequence& sequence) {
  return sequence.old_logprobs.size() == sequence.trained.size() &&
         std::none_of(sequence.rollout_logprobs.begin(), sequence.rollout_logprobs.end(),
                      [](float value) { return std::isnan(value); });
}

double Square(double log_ratio) { return std::exp(2.0 * std::clamp(log_ratio, -20.0, 20.0)); }

}  // namespace

void AddOffPolicyMetrics(const TrainingBatch& batch, Metrics& metrics) {
  double num_tokens = 0, num_sequences = 0;
  Metrics of_tokens, of_sequences;  // sums
  double largest = -std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  for (const Sequence& sequence : batch.sequences) {
    if (sequence.trained.empty()) continue;
    if (!HasBoth(sequence)) return;
    double trainer = 0, rollout = 0;
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      const double log_ratio =
          static_cast<double>(sequence.old_logprobs[t]) - sequence.rollout_logprobs[t];
      trainer += sequence.old_logprobs[t];
      rollout += sequence.rollout_logprobs[t];
      of_tokens["kl"] -= log_ratio;
      of_tokens["k3_kl"] += std::exp(log_ratio) - log_ratio - 1.0;
      of_tokens["chi2_token"] += Square(log_ratio) - 1.0;
    }
    const auto n = static_cast<double>(sequence.trained.size());
    const double difference = (rollout - trainer) / n;
    of_sequences["training_ppl"] += std::exp(-trainer / n);
    of_sequences["training_log_ppl"] -= trainer / n;
    of_sequences["rollout_ppl"] += std::exp(-rollout / n);
    of_sequences["rollout_log_ppl"] -= rollout / n;
    of_sequences["log_ppl_diff"] += difference;
    of_sequences["log_ppl_abs_diff"] += std::abs(difference);
    of_sequences["ppl_ratio"] += std::exp(difference);
    of_sequences["chi2_seq"] += Square(trainer - rollout) - 1.0;
    largest = std::max(largest, difference);
    least = std::min(least, difference);
    num_tokens += n;
    ++num_sequences;
  }
  if (num_tokens == 0) return;
  for (const auto& [name, sum] : of_tokens) metrics["rollout_corr/" + name] = sum / num_tokens;
  for (const auto& [name, sum] : of_sequences) {
    metrics["rollout_corr/" + name] = sum / num_sequences;
  }
  metrics["rollout_corr/log_ppl_diff_max"] = largest;
  metrics["rollout_corr/log_ppl_diff_min"] = least;
}

}  // namespace tandem::trainer
