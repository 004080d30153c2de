#include "services/trainer/algorithm/loss_aggregation.h"

#include <cstddef>

namespace tandem::trainer {

std::vector<double> TokenWeights(LossAggregation mode, absl::Span<const int64_t> num_tokens,
                                 double scale) {
  double tokens = 0;
  double sequences = 0;
  for (int64_t n : num_tokens) {
    tokens += static_cast<double>(n);
    if (n > 0) ++sequences;
  }
  std::vector<double> weights(num_tokens.size(), 0.0);
  for (size_t i = 0; i < num_tokens.size(); ++i) {
    if (num_tokens[i] == 0) continue;
    switch (mode) {
      case LossAggregation::kTokenMean:
        weights[i] = 1.0 / tokens;
        break;
      case LossAggregation::kTokenSum:
        weights[i] = 1.0;
        break;
      case LossAggregation::kSeqMeanTokenSum:
        weights[i] = 1.0 / sequences;
        break;
      case LossAggregation::kSeqMeanTokenMean:
        weights[i] = 1.0 / (sequences * static_cast<double>(num_tokens[i]));
        break;
      case LossAggregation::kSeqMeanTokenSumNorm:
        weights[i] = 1.0 / (sequences * scale);
        break;
    }
  }
  return weights;
}

}  // namespace tandem::trainer
