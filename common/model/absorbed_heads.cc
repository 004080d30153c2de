#include "common/model/absorbed_heads.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>

#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

// The up-projection head by head: [num_heads, nope_dim + v_dim, kv_rank].
at::Tensor UpByHead(const at::Tensor& up, const LatentShape& shape) {
  return up.view({shape.num_heads, shape.nope_dim + shape.v_dim, up.size(1)});
}

}  // namespace

AbsorbedHeads AbsorbQueries(const at::Tensor& q, const at::Tensor& latent, const at::Tensor& shared,
                            const at::Tensor& up, const LatentShape& shape,
                            const RotaryAngles& angles) {
  const int64_t num_tokens = q.size(0);
  const int64_t kv_rank = latent.size(1);
  const at::Tensor heads = q.view({num_tokens, shape.num_heads, shape.head_dim()});
  // The part that rotates, as heads without another part and without values.
  const LatentShape rotating{shape.num_heads, 0, shape.rope_dim, 0};
  const at::Tensor turning =
      heads.narrow(2, shape.nope_dim, shape.rope_dim).reshape({num_tokens, -1});
  const Qkv rotated =
      JoinLatentHeads({turning, shared, at::empty({num_tokens, 0}, q.options())}, rotating, angles);

  AbsorbedHeads out;
  out.q = EmptyTensor({num_tokens, shape.num_heads, kv_rank + shape.rope_dim}, q.options());
  const at::Tensor of_keys = UpByHead(up, shape).narrow(1, 0, shape.nope_dim);
  out.q.narrow(2, 0, kv_rank)
      .copy_(at::bmm(heads.narrow(2, 0, shape.nope_dim).transpose(0, 1), of_keys).transpose(0, 1));
  out.q.narrow(2, kv_rank, shape.rope_dim).copy_(rotated.q);
  out.latents = EmptyTensor({num_tokens, kv_rank + shape.rope_dim}, q.options());
  out.latents.narrow(1, 0, kv_rank).copy_(latent);
  out.latents.narrow(1, kv_rank, shape.rope_dim).copy_(rotated.k.select(1, 0));
  return out;
}

at::Tensor ExpandAttended(const at::Tensor& attended, const at::Tensor& up,
                          const LatentShape& shape) {
  const int64_t num_tokens = attended.size(0);
  const at::Tensor sums = attended.view({num_tokens, shape.num_heads, up.size(1)});
  const at::Tensor of_values = UpByHead(up, shape).narrow(1, shape.nope_dim, shape.v_dim);
  at::Tensor out = EmptyTensor({num_tokens, shape.num_heads, shape.v_dim}, attended.options());
  out.copy_(at::bmm(sums.transpose(0, 1), of_values.transpose(1, 2)).transpose(0, 1));
  return out.flatten(1);
}

}  // namespace tandem::model
