// Routing: which experts compute a token, and with which weights. Everything is in float32 and a
// row's result depends only on that row, bit for bit.
#ifndef TANDEM_COMMON_MODEL_ROUTER_H_
#define TANDEM_COMMON_MODEL_ROUTER_H_

#include <ATen/core/Tensor.h>

#include "common/model/layers/expert_spec.h"

namespace tandem::model {

struct Router {
  RoutingSpec spec;
  // [num_experts], of the logits' type, without a graph; undefined unless the spec has it.
  at::Tensor correction_bias;
};

// Returns the experts that the spec chooses, int64 [num_tokens, top_k], in ascending order. Of equal
// ones the lower counts first; NaN is less than any number. logits: float32 (float64 for float64
// models) [num_tokens, num_experts].
at::Tensor ChooseExperts(const at::Tensor& logits, const Router& router);

// Returns the chosen experts' weights, [num_tokens, top_k] of the logits' type. A row with a NaN among
// its logits, or every row if one is in the correction bias, has weights of NaN. Differentiable.
at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts, const Router& router);

// Returns the sigmoid of the logits, element by element: the weight of a shared expert.
// Differentiable.
at::Tensor GateWeights(const at::Tensor& logits);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROUTER_H_
