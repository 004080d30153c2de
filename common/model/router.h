// Routing: which experts compute a token, and with which weights. Everything is in float32 and a
// row's result depends only on that row, bit for bit.
#ifndef TANDEM_COMMON_MODEL_ROUTER_H_
#define TANDEM_COMMON_MODEL_ROUTER_H_

#include <ATen/core/Tensor.h>

#include "common/model/layers/expert_spec.h"

namespace tandem::model {

// Returns the experts with the largest logits, int64 [num_tokens, top_k], in ascending order. Of
// equal logits the lower expert's counts first; NaN is less than any number. logits: float32
// (float64 for float64 models) [num_tokens, num_experts].
at::Tensor ChooseExperts(const at::Tensor& logits, int64_t top_k);

// Returns the chosen experts' weights, [num_tokens, top_k] of the logits' type: their share of a
// softmax over all logits, or over the chosen ones if `normalize`. A row with a NaN among its
// logits has weights of NaN. Differentiable.
at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts, bool normalize);

// Returns the sigmoid of the logits, element by element: the weight of a shared expert.
// Differentiable.
at::Tensor GateWeights(const at::Tensor& logits);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROUTER_H_
