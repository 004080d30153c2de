// The output head's log-probs without the matrix of all logits.
#ifndef TANDEM_COMMON_MODEL_HEAD_H_
#define TANDEM_COMMON_MODEL_HEAD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/comm/process_group.h"
#include "common/model/kernels/gemm.h"

namespace tandem::model {

// hidden weight^T in float32, of bfloat16 too: rounded logits would give log-probs of three digits.
// (float64 for float64 inputs.) hidden: [num_rows, hidden_size], weight: [vocab, hidden_size], both
// contiguous; packed: the weight's own packed form, or null. Not differentiable.
at::Tensor HeadLogits(const at::Tensor& hidden, const at::Tensor& weight,
                      const kernels::PackedMatrix* packed = nullptr);

// What the head says of the tokens that followed, float32 [num_rows] each.
struct LogProbs {
  at::Tensor logprobs;  // log softmax(logits / temperature)[target]
  at::Tensor entropy;   // of softmax(logits / temperature), in nats
};

// Which rows of the vocabulary the weight has, where they are split over ranks. The ranks compute
// the same rows of hidden at once, exchange four numbers for each of them, and have the same
// results.
struct VocabularyPart {
  comm::ProcessGroup* group = nullptr;  // null: all
  int64_t begin = 0;                    // the vocabulary row that is the weight's first
};

// hidden: [num_rows, hidden_size], weight: [vocab, hidden_size], targets: int64 [num_rows],
// temperatures: float32 [num_rows], each > 0; packed: as HeadLogits(), read where no graph is
// recorded. Works in chunks of rows; the backward pass computes the logits again, and exchanges
// nothing. Differentiable in hidden and weight through both results; the gradient of hidden is that
// of this rank's part of the vocabulary. Throws CollectiveError.
LogProbs ChunkedLogProbs(const at::Tensor& hidden, const at::Tensor& weight,
                         const at::Tensor& targets, const at::Tensor& temperatures,
                         const VocabularyPart& part = {},
                         const kernels::PackedMatrix* packed = nullptr);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_HEAD_H_
