// Latent attention over a cache of latents (layers/latent_spec.h): every head's key is the
// up-projection of a latent, so its score with a query is the latent's with the query times that
// projection; and a weighted sum of values is the projection of the sum of latents. No key or value
// is ever made.
//
//   AbsorbedHeads heads = AbsorbQueries(q, latent, shared, up, shape, angles);
//   at::Tensor attended = attention.ForwardLatents(layer, heads.q, heads.latents, params);
//   at::Tensor out = ExpandAttended(attended, up, shape);   // [num_tokens, num_heads * v_dim]
#ifndef TANDEM_COMMON_MODEL_ABSORBED_HEADS_H_
#define TANDEM_COMMON_MODEL_ABSORBED_HEADS_H_

#include <ATen/core/Tensor.h>

#include "common/model/latent_heads.h"

namespace tandem::model {

struct AbsorbedHeads {
  at::Tensor q;        // [num_tokens, num_heads, kv_rank + rope_dim]
  at::Tensor latents;  // [num_tokens, kv_rank + rope_dim], to be cached
};

// q: [num_tokens, num_heads * head_dim], not rotated; latent: [num_tokens, kv_rank], normed; shared:
// [num_tokens, rope_dim], not rotated; up: [num_heads * (nope_dim + v_dim), kv_rank], the
// up-projection, in memory row by row; all of them on the CPU or on one GPU, float32 or bfloat16. Not
// differentiable. On a GPU everything is queued on the thread's current stream.
AbsorbedHeads AbsorbQueries(const at::Tensor& q, const at::Tensor& latent, const at::Tensor& shared,
                            const at::Tensor& up, const LatentShape& shape,
                            const RotaryAngles& angles);

// attended: [num_tokens, num_heads * kv_rank], weighted sums of latents. Returns the heads' weighted
// sums of values, [num_tokens, num_heads * v_dim].
at::Tensor ExpandAttended(const at::Tensor& attended, const at::Tensor& up,
                          const LatentShape& shape);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ABSORBED_HEADS_H_
