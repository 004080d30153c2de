// Aggregates token losses into one number. Every mode is a weighted sum over tokens, with weights
// that follow from the counts of the whole mini-batch, on all ranks, which are known before the
// forward pass. So each micro-batch adds its part, gradients are summed, and neither sharding nor
// micro-batching changes them.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_LOSS_AGGREGATION_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_LOSS_AGGREGATION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::trainer {

enum class LossAggregation {
  kTokenMean,            // sum over tokens / tokens
  kTokenSum,             // sum over tokens
  kSeqMeanTokenSum,      // sum over tokens / sequences
  kSeqMeanTokenMean,     // mean over sequences of the mean over tokens
  kSeqMeanTokenSumNorm,  // sum over tokens / sequences / scale (Dr. GRPO, 2503.20783)
};

// Returns, for each sequence, the weight of each of its tokens. num_tokens: trained-on tokens of
// each sequence of the mini-batch; no mean counts sequences without any.
std::vector<double> TokenWeights(LossAggregation mode, absl::Span<const int64_t> num_tokens,
                                 double scale);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_LOSS_AGGREGATION_H_
