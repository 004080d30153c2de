#include "services/trainer/algorithm/token_covariance.h"

#include <algorithm>
#include <cstdint>

namespace tandem::trainer {

std::vector<TokenCovariance> TokenCovariances(const TrainingBatch& batch) {
  double logprobs = 0;
  double advantages = 0;
  for (const Sequence& sequence : batch.sequences) {
    for (const float value : sequence.old_logprobs) logprobs += value;
    for (const float value : sequence.advantages) advantages += value;
  }
  const auto count = static_cast<double>(std::max<int64_t>(1, batch.num_trained_tokens()));
  std::vector<TokenCovariance> out;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const Sequence& sequence = batch.sequences[i];
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      out.push_back({i, t,
                     (sequence.old_logprobs[t] - logprobs / count) *
                         (sequence.advantages[t] - advantages / count)});
    }
  }
  return out;
}

void SelectTokens(TrainingBatch& batch, const std::vector<TokenCovariance>& tokens) {
  for (Sequence& sequence : batch.sequences) {
    sequence.selected.assign(sequence.trained.size(), 0.0f);
  }
  for (const TokenCovariance& token : tokens) {
    batch.sequences[token.sequence].selected[token.token] = 1.0f;
  }
}

}  // namespace tandem::trainer
