// Splits the fused projection into q, k and v, normalises the heads of q and k if the model does,
// and rotates them by their positions.
#ifndef TANDEM_COMMON_MODEL_ROTARY_H_
#define TANDEM_COMMON_MODEL_ROTARY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tandem::model {

// Cosines and sines of the rotary embedding for the tokens of a batch, float32 [num_tokens,
// head_dim / 2] each.
struct Rotary {
  at::Tensor cos;
  at::Tensor sin;
};

// Computes the table. positions: int64 [num_tokens]; inverse_frequencies: float32 [head_dim / 2] on
// the CPU. A token's angles depend only on its position, bit for bit.
Rotary RotaryOf(const at::Tensor& positions, const at::Tensor& inverse_frequencies);

struct QkvShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
};

struct Qkv {
  at::Tensor q;  // [num_tokens, num_heads, head_dim]
  at::Tensor k;  // [num_tokens, num_kv_heads, head_dim]
  at::Tensor v;  // [num_tokens, num_kv_heads, head_dim], a view of the projection
};

// The rotation and the optional norms of the heads of q and k.
struct HeadRotation {
  Rotary rotary;
  QkvShape shape;
  std::optional<at::Tensor> q_norm;  // [head_dim]
  std::optional<at::Tensor> k_norm;  // likewise
  double eps = 0;                    // of the norms
};

// qkv: [num_tokens, (num_heads + 2 num_kv_heads) * head_dim].
Qkv RotateQkv(const at::Tensor& qkv, const HeadRotation& rotation);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROTARY_H_
