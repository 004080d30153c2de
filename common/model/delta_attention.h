// Linear attention by the gated delta rule (layers/delta_spec.h) over packed sequences.
//
//   at::Tensor out = DeltaAttention(spec, tensors, cu_seqlens);
#ifndef TANDEM_COMMON_MODEL_DELTA_ATTENTION_H_
#define TANDEM_COMMON_MODEL_DELTA_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include "common/model/kernels/delta_rule.h"
#include "common/model/layers/delta_spec.h"

namespace tandem::model {

// A layer's projections and its parameters, all of one type.
struct DeltaTensors {
  at::Tensor projected;    // [num_tokens, projected_size]: q, k, v, z, b, a
  at::Tensor convolution;  // [convolved_size, 1, kernel_size]
  at::Tensor a_log;        // [num_value_heads]
  at::Tensor dt_bias;      // [num_value_heads]
  at::Tensor norm;         // [value_dim]
};

// Each sequence begins with a state of zeros. cu_seqlens: int64 [num_sequences + 1] on the CPU, as for
// PackedAttention. Returns what the output projection reads, [num_tokens, value_size]. Differentiable;
// the graph keeps the inputs alone.
at::Tensor DeltaAttention(const DeltaSpec& spec, const DeltaTensors& tensors,
                          const at::Tensor& cu_seqlens);

// What the kernels need to know; the tensors must outlive it, and be contiguous.
kernels::DeltaShape DeltaShapeOf(const DeltaSpec& spec, const DeltaTensors& tensors);

namespace eager {

// The same as plain operations, in any floating-point type and on any device: the reference. Sums are
// in the type of the tensors, or in float32 if that is narrower.
at::Tensor DeltaAttention(const DeltaSpec& spec, const DeltaTensors& tensors,
                          const at::Tensor& cu_seqlens);

}  // namespace eager
}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_DELTA_ATTENTION_H_
