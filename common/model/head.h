// Log-probs of the output head, without materializing all logits.
//
//   LogProbs out = ChunkedLogProbs(hidden, {.weight = weight}, targets, temperatures);
#ifndef TANDEM_COMMON_MODEL_HEAD_H_
#define TANDEM_COMMON_MODEL_HEAD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/comm/process_group.h"
#include "common/model/kernels/gemm.h"

namespace tandem::model {

// The output projection and what follows it: logits = softcap(scale * (weight hidden + bias)).
struct LmHead {
  at::Tensor weight;  // [vocab, hidden_size], contiguous unless packed
  at::Tensor bias;    // [vocab]; undefined: none
  double scale = 1.0;
  double softcap = 0.0;  // c: c tanh(x / c); 0: none
  // The weight's own packed form, or null; used if no graph is recorded.
  const kernels::PackedMatrix* packed = nullptr;
};

// Returns the logits in float32, also for bfloat16 inputs: rounded logits would give log-probs of
// three digits. (float64 for float64 inputs.) hidden: [num_rows, hidden_size], contiguous. Not
// differentiable.
at::Tensor HeadLogits(const at::Tensor& hidden, const LmHead& head);

// Log-probs and entropies of the target tokens, float32 [num_rows] each.
struct LogProbs {
  at::Tensor logprobs;  // log softmax(logits / temperature)[target]
  at::Tensor entropy;   // of softmax(logits / temperature), in nats
  // The sum of the squared probabilities; undefined unless asked for.
  at::Tensor sum_pi_squared;
  // Of soft targets (soft_targets.h); undefined unless the batch has any.
  at::Tensor soft;
};

// The vocabulary rows that this rank's weight has when ranks split them. All ranks process the same
// rows of hidden at the same time, exchange four numbers per row, and return the same results.
struct VocabularyPart {
  comm::ProcessGroup* group = nullptr;  // null: not split
  int64_t begin = 0;                    // vocabulary index of the weight's first row
};

// hidden: [num_rows, hidden_size], targets: int64 [num_rows], temperatures: float32 [num_rows], each
// > 0. Processes chunks of rows; the backward pass recomputes the logits and exchanges nothing.
// Differentiable in hidden, weight and bias through both results; the gradient of hidden covers
// only this rank's part of the vocabulary. Throws CollectiveError.
LogProbs ChunkedLogProbs(const at::Tensor& hidden, const LmHead& head, const at::Tensor& targets,
                         const at::Tensor& temperatures, const VocabularyPart& part = {});

// The same without a graph, and with sum_pi_squared.
LogProbs ChunkedLogProbsAndSquares(const at::Tensor& hidden, const LmHead& head,
                                   const at::Tensor& targets, const at::Tensor& temperatures,
                                   const VocabularyPart& part = {});

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_HEAD_H_
