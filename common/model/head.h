// Log-probs of the output head, without materializing all logits.
#ifndef TANDEM_COMMON_MODEL_HEAD_H_
#define TANDEM_COMMON_MODEL_HEAD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/comm/process_group.h"
#include "common/model/kernels/gemm.h"

namespace tandem::model {

// Returns hidden weight^T in float32, also for bfloat16 inputs: rounded logits would give log-probs
// of three digits. (float64 for float64 inputs.) hidden: [num_rows, hidden_size], weight: [vocab,
// hidden_size], both contiguous; packed: the weight's own packed form, or null. Not differentiable.
at::Tensor HeadLogits(const at::Tensor& hidden, const at::Tensor& weight,
                      const kernels::PackedMatrix* packed = nullptr);

// Log-probs and entropies of the target tokens, float32 [num_rows] each.
struct LogProbs {
  at::Tensor logprobs;  // log softmax(logits / temperature)[target]
  at::Tensor entropy;   // of softmax(logits / temperature), in nats
  // The sum of the squared probabilities; undefined unless asked for.
  at::Tensor sum_pi_squared;
};

// The vocabulary rows that this rank's weight has when ranks split them. All ranks process the same
// rows of hidden at the same time, exchange four numbers per row, and return the same results.
struct VocabularyPart {
  comm::ProcessGroup* group = nullptr;  // null: not split
  int64_t begin = 0;                    // vocabulary index of the weight's first row
};

// hidden: [num_rows, hidden_size], weight: [vocab, hidden_size], targets: int64 [num_rows],
// temperatures: float32 [num_rows], each > 0; packed: like HeadLogits(), used if no graph is
// recorded. Processes chunks of rows; the backward pass recomputes the logits and exchanges
// nothing. Differentiable in hidden and weight through both results; the gradient of hidden covers
// only this rank's part of the vocabulary. Throws CollectiveError.
LogProbs ChunkedLogProbs(const at::Tensor& hidden, const at::Tensor& weight,
                         const at::Tensor& targets, const at::Tensor& temperatures,
                         const VocabularyPart& part = {},
                         const kernels::PackedMatrix* packed = nullptr);

// The same without a graph, and with sum_pi_squared.
LogProbs ChunkedLogProbsAndSquares(const at::Tensor& hidden, const at::Tensor& weight,
                                   const at::Tensor& targets, const at::Tensor& temperatures,
                                   const VocabularyPart& part = {},
                                   const kernels::PackedMatrix* packed = nullptr);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_HEAD_H_
