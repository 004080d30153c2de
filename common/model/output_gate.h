// The gate on attention's results (AttentionSpec::output_gate).
#ifndef TANDEM_COMMON_MODEL_OUTPUT_GATE_H_
#define TANDEM_COMMON_MODEL_OUTPUT_GATE_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

// Returns x sigmoid(gate), all [num_tokens, size] of one type. Computes in float32 and rounds once.
// Differentiable. A row's bits depend on that row alone.
at::Tensor GateBySigmoid(const at::Tensor& x, const at::Tensor& gate);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_OUTPUT_GATE_H_
