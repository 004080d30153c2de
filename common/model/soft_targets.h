// Cross-entropy with several weighted target tokens for each row, such as a teacher's likeliest ones,
// without materializing all logits.
//
//   const SoftTargets targets{ids, teacher_logprobs.exp()};
//   at::Tensor out = HeadSoftLogProbs(model, params, hidden, targets, temperatures);
//   at::Tensor loss = -out.sum();
#ifndef TANDEM_COMMON_MODEL_SOFT_TARGETS_H_
#define TANDEM_COMMON_MODEL_SOFT_TARGETS_H_

#include <ATen/core/Tensor.h>

#include "common/model/head.h"
#include "common/model/parameter_provider.h"
#include "common/model/transformer.h"

namespace tandem::model {

struct SoftTargets {
  at::Tensor ids;      // int64 [num_rows, K], in the vocabulary; an id may appear several times
  at::Tensor weights;  // float32 [num_rows, K]; need not add up to 1
};

// With q = softmax(logits / temperature) returns, for each row, the sum over k of weights[k] log
// q[ids[k]], float32 [num_rows]: with one id of weight 1, that of ChunkedLogProbs(). hidden:
// [num_rows, hidden_size], temperatures: float32 [num_rows], each > 0. Processes chunks of rows; the
// backward pass recomputes the logits. Differentiable in hidden, weight and bias; over a split
// vocabulary like ChunkedLogProbs(). Throws CollectiveError.
at::Tensor ChunkedSoftLogProbs(const at::Tensor& hidden, const LmHead& head,
                               const SoftTargets& targets, const at::Tensor& temperatures,
                               const VocabularyPart& part = {});

// The same with a model's head; hidden: after FinalNorm().
at::Tensor HeadSoftLogProbs(const Transformer& model, const ParameterProvider& params,
                            const at::Tensor& hidden, const SoftTargets& targets,
                            const at::Tensor& temperatures);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_SOFT_TARGETS_H_
