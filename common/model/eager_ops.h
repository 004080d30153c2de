// The layers' operations written with ATen alone, differentiable through its autograd, on any
// device and in any floating dtype. The CUDA path where no kernel of our own exists, and what the
// tests hold the CPU kernels against. Computed in float32 (float64 for float64 inputs), rounded
// once at the end.
#ifndef TANDEM_COMMON_MODEL_EAGER_OPS_H_
#define TANDEM_COMMON_MODEL_EAGER_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "common/model/attention.h"
#include "common/model/rotary.h"

namespace tandem::model::eager {

// x / rms(x) * weight over the last dim.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// q, k and v of fused projections [num_tokens, q + 2 kv]; see rotary.h.
Qkv RotateQkv(const at::Tensor& qkv, const Rotary& rotary, const QkvShape& shape,
              const std::optional<at::Tensor>& q_norm, const std::optional<at::Tensor>& k_norm,
              double eps);

// silu(gate) * up of gate_up [num_tokens, 2 inner].
at::Tensor SwiGlu(const at::Tensor& gate_up);

// What each token of one sequence reads of each other: the softmax of causal scores, float32
// (float64 for float64 inputs) [num_heads, length, length]; sinks take their part of a row and are
// left out of it.
//   q [length, num_heads, head_dim], k [length, num_kv_heads, head_dim]
at::Tensor AttentionProbabilities(const at::Tensor& q, const at::Tensor& k,
                                  const AttentionParams& params);

// Causal attention over packed sequences: cu_seqlens, int64 [num_sequences + 1] on the CPU, holds
// the first token of each and the end. One sequence after the other, with the full matrix of
// scores.
at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& cu_seqlens, const AttentionParams& params);

}  // namespace tandem::model::eager

#endif  // TANDEM_COMMON_MODEL_EAGER_OPS_H_
