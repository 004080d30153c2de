// Splits the fused projection into q, k and v, normalises them if the model does, and rotates
// the heads of q and k by their positions.
#ifndef TANDEM_COMMON_MODEL_ROTARY_H_
#define TANDEM_COMMON_MODEL_ROTARY_H_

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/layers/attention_spec.h"

namespace tandem::model {

// Cosines and sines of one rotary embedding for the tokens of a batch, float32 [num_tokens,
// rotary_dim / 2] each.
struct RotaryAngles {
  at::Tensor cos;
  at::Tensor sin;
  bool interleaved = false;  // pairs (2i, 2i + 1) rotate, not (i, i + rotary_dim / 2)
};

// What the positions of a batch's tokens mean to the layers (rotary_tables.h).
struct Rotary {
  c10::SmallVector<RotaryAngles, 2> ropes;  // of each of ModelSpec::ropes
  // By QueryPositionScale, of each layer: float32 [num_tokens], or undefined. Empty: no layer has it.
  std::vector<at::Tensor> query_scales;
};

// Computes the table. positions: int64 [num_tokens]; inverse_frequencies: float32 [rotary_dim / 2]
// on the CPU; `factor` multiplies cosines and sines. A token's angles depend only on its position,
// bit for bit.
RotaryAngles AnglesOf(const at::Tensor& positions, const at::Tensor& inverse_frequencies,
                      double factor = 1.0);

struct QkvShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;  // of values; 0: head_dim

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  int64_t v_size() const { return num_kv_heads * value_dim(); }
};

struct Qkv {
  at::Tensor q;  // [num_tokens, num_heads, head_dim]
  at::Tensor k;  // [num_tokens, num_kv_heads, head_dim]
  at::Tensor
      v;  // [num_tokens, num_kv_heads, value_dim()], a view of the projection unless v is normed
};

// A norm's tensors, of the shapes that QkNormSpec::Over says; undefined for those that it lacks.
struct NormTensors {
  at::Tensor weight;
  at::Tensor bias;
};

// What happens to the heads of q and k, and to those of v.
struct HeadRotation {
  RotaryAngles angles;  // undefined: no rotation
  QkvShape shape;
  std::optional<QkNormSpec> norm;
  NormTensors q_norm;
  NormTensors k_norm;
  at::Tensor query_scale;  // float32 [num_tokens], multiplies q in the end; undefined: none
  std::optional<NormSpec> value_norm;  // of each head of v, without weights

  // Whether whole heads of q and k rotate in halves, behind no norm or an RMS norm of each head: the fused
  // kernels' case.
  bool IsPlain() const;
};

// qkv: [num_tokens, (num_heads + num_kv_heads) * head_dim + v_size()]; there may be no keys and values.
// Differentiable. The bits of a token's heads depend on nothing but the token.
Qkv RotateQkv(const at::Tensor& qkv, const HeadRotation& rotation);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROTARY_H_
