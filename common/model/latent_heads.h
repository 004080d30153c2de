// The heads of latent attention (layers/latent_spec.h): rotates queries and the key part that all
// heads share, and joins that part to the keys of every head.
//
//   Qkv heads = JoinLatentHeads({q, shared, kv}, shape, rotary.ropes[0]);
#ifndef TANDEM_COMMON_MODEL_LATENT_HEADS_H_
#define TANDEM_COMMON_MODEL_LATENT_HEADS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/rotary.h"

namespace tandem::model {

struct LatentShape {
  int64_t num_heads = 0;
  int64_t nope_dim = 0;  // leading elements of a head, which do not rotate
  int64_t rope_dim = 0;  // the others
  int64_t v_dim = 0;

  int64_t head_dim() const { return nope_dim + rope_dim; }
};

// Projections whose heads are not rotated yet.
struct LatentProjections {
  at::Tensor q;       // [num_tokens, num_heads * head_dim]
  at::Tensor shared;  // [num_tokens, rope_dim]
  at::Tensor kv;      // [num_tokens, num_heads * (nope_dim + v_dim)]
};

// Returns contiguous heads, with as many of keys and values as of queries. `angles` may be undefined:
// no rotation. Differentiable. The bits of a token's heads depend on nothing but the token.
Qkv JoinLatentHeads(const LatentProjections& projections, const LatentShape& shape,
                    const RotaryAngles& angles);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LATENT_HEADS_H_
