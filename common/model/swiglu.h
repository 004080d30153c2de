// The gated activation of the feed-forward layer.
#ifndef TANDEM_COMMON_MODEL_SWIGLU_H_
#define TANDEM_COMMON_MODEL_SWIGLU_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

// Returns silu(gate) * up, [num_tokens, inner]. gate_up: [num_tokens, 2 inner], gate first.
// Differentiable.
at::Tensor SwiGlu(const at::Tensor& gate_up);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_SWIGLU_H_
