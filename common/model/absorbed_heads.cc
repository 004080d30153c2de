#include "common/model/absorbed_heads.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>

#include <cstddef>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_latents.h"
#include "common/model/step_memory.h"
#include "common/model/worker_pool.h"

namespace tandem::model {
namespace {

// A matrix of each head, [rows, columns].
struct HeadMatrices {
  const at::Tensor& tensor;
  int64_t first = 0;  // element of the first head's
  int64_t head_stride = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 1;

  kernels::ConstMatrix Of(int64_t head) const {
    const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
    const int64_t element = first + head * head_stride;
    return {data + element * static_cast<int64_t>(tensor.element_size()), ElementOf(tensor),
            row_stride, column_stride};
  }
};

// Columns [0, n) of each head of `out`, [num_tokens, num_heads, size] = a b, whose inner size is k.
//
// The kernels write the result in place and share the engine's threads. ATen's batched product would
// need it reordered, and MKL would wait for its own threads beside the engine's.
void MultiplyHeads(const HeadMatrices& a, const HeadMatrices& b, int64_t k, int64_t n,
                   at::Tensor& out) {
  const int64_t num_heads = out.size(1);
  const auto multiply = [&](int64_t head) {
    kernels::Product product{.m = out.size(0), .n = n, .k = k, .a = a.Of(head), .b = b.Of(head)};
    product.c = static_cast<std::byte*>(out.mutable_data_ptr()) +
                head * out.size(2) * static_cast<int64_t>(out.element_size());
    product.c_type = ElementOf(out);
    product.c_row_stride = num_heads * out.size(2);
    Multiply(product);
  };
  const auto multiply_all = [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) multiply(head);
  };
  // A product within a task computes on that task's thread.
  if (num_heads < NumThreads()) {
    multiply_all(0, num_heads);
  } else {
    ForTasks(num_heads, multiply_all);
  }
}

// The up-projection's matrices of each head on a GPU, [num_heads, rows, kv_rank].
at::Tensor HeadRows(const at::Tensor& up, const LatentShape& shape, int64_t first, int64_t rows) {
  return up.view({shape.num_heads, shape.nope_dim + shape.v_dim, up.size(1)})
      .narrow(1, first, rows);
}

// out [num_tokens, num_heads, n] = a [num_tokens, num_heads, k] b [num_heads, k, n] on a GPU. Its library
// writes a batch's results with any stride.
void MultiplyHeadsOnDevice(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  at::Tensor by_head = out.transpose(0, 1);
  at::bmm_out(by_head, a.transpose(0, 1), b);
}

AbsorbedHeads AbsorbOnDevice(const at::Tensor& q, const at::Tensor& latent,
                             const at::Tensor& shared, const at::Tensor& up,
                             const LatentShape& shape, const RotaryAngles& angles) {
  const int64_t num_tokens = q.size(0);
  const int64_t kv_rank = latent.size(1);
  const int64_t width = kv_rank + shape.rope_dim;
  AbsorbedHeads out{at::empty({num_tokens, shape.num_heads, width}, q.options()),
                    at::empty({num_tokens, width}, q.options())};
  const at::Tensor heads = q.view({num_tokens, shape.num_heads, shape.head_dim()});
  MultiplyHeadsOnDevice(heads.narrow(2, 0, shape.nope_dim), HeadRows(up, shape, 0, shape.nope_dim),
                        out.q.narrow(2, 0, kv_rank));
  device::WriteLatentRows(q, latent, shared, shape, angles, out);
  return out;
}

}  // namespace

AbsorbedHeads AbsorbQueries(const at::Tensor& q, const at::Tensor& latent, const at::Tensor& shared,
                            const at::Tensor& up, const LatentShape& shape,
                            const RotaryAngles& angles) {
  if (!q.is_cpu()) return AbsorbOnDevice(q, latent, shared, up, shape, angles);
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
  const HeadMatrices queries{heads, 0, shape.head_dim(), shape.num_heads * shape.head_dim()};
  const HeadMatrices of_keys{up, 0, (shape.nope_dim + shape.v_dim) * kv_rank, kv_rank};
  MultiplyHeads(queries, of_keys, shape.nope_dim, kv_rank, out.q);
  out.q.narrow(2, kv_rank, shape.rope_dim).copy_(rotated.q);
  out.latents = EmptyTensor({num_tokens, kv_rank + shape.rope_dim}, q.options());
  out.latents.narrow(1, 0, kv_rank).copy_(latent);
  out.latents.narrow(1, kv_rank, shape.rope_dim).copy_(rotated.k.select(1, 0));
  return out;
}

at::Tensor ExpandAttended(const at::Tensor& attended, const at::Tensor& up,
                          const LatentShape& shape) {
  const int64_t num_tokens = attended.size(0);
  const int64_t kv_rank = up.size(1);
  if (!attended.is_cpu()) {
    const at::Tensor expanded =
        at::empty({num_tokens, shape.num_heads, shape.v_dim}, attended.options());
    MultiplyHeadsOnDevice(attended.view({num_tokens, shape.num_heads, kv_rank}),
                          HeadRows(up, shape, shape.nope_dim, shape.v_dim).transpose(1, 2),
                          expanded);
    return expanded.flatten(1);
  }
  const at::Tensor sums = attended.contiguous();
  at::Tensor out = EmptyTensor({num_tokens, shape.num_heads, shape.v_dim}, attended.options());
  const HeadMatrices of_latents{sums, 0, kv_rank, shape.num_heads * kv_rank};
  const HeadMatrices of_values{up, shape.nope_dim * kv_rank,
                               (shape.nope_dim + shape.v_dim) * kv_rank, 1, kv_rank};
  MultiplyHeads(of_latents, of_values, kv_rank, shape.v_dim, out);
  return out.flatten(1);
}

}  // namespace tandem::model
