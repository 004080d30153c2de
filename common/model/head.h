// The output head's log-probs without the matrix of all logits.
#ifndef TANDEM_COMMON_MODEL_HEAD_H_
#define TANDEM_COMMON_MODEL_HEAD_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

// What the head says of the tokens that followed, float32 [num_rows] each.
struct LogProbs {
  at::Tensor logprobs;  // log softmax(logits / temperature)[target]
  at::Tensor entropy;   // of softmax(logits / temperature), in nats
};

// hidden: [num_rows, hidden_size], weight: [vocab, hidden_size], targets: int64 [num_rows],
// temperatures: float32 [num_rows], each > 0. Works in chunks of rows; the backward pass computes
// the logits again. Differentiable in hidden and weight through both results.
LogProbs ChunkedLogProbs(const at::Tensor& hidden, const at::Tensor& weight,
                         const at::Tensor& targets, const at::Tensor& temperatures);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_HEAD_H_
