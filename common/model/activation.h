// The activation of a feed-forward layer, gated or not.
#ifndef TANDEM_COMMON_MODEL_ACTIVATION_H_
#define TANDEM_COMMON_MODEL_ACTIVATION_H_

#include <ATen/core/Tensor.h>

#include "common/model/layers/feed_forward_spec.h"

namespace tandem::model {

// An activation with its parameters.
struct ActivationFunction {
  Activation activation = Activation::kSilu;
  bool gated = true;
  at::Tensor alphas;  // [2], of xIELU, which has no gate: alpha_p, then alpha_n; else undefined
};

// Returns activation(gate) * up, [num_rows, inner]; in: [num_rows, 2 inner], gate first. Without a
// gate, activation(in), in: [num_rows, inner]. Computes in float32 and rounds once. Differentiable.
at::Tensor Activate(const at::Tensor& in, const ActivationFunction& function);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ACTIVATION_H_
