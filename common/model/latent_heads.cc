#include "common/model/latent_heads.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>
#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/eager_ops.h"
#include "common/model/kernels/latent_rows.h"
#include "common/model/optional_tensor.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::LatentRows LatentRowsOf(const at::Tensor& like, const LatentShape& shape,
                                 const RotaryAngles& angles) {
  kernels::LatentRows rows;
  rows.type = ElementOf(like);
  rows.num_heads = shape.num_heads;
  rows.nope_dim = shape.nope_dim;
  rows.rope_dim = shape.rope_dim;
  rows.v_dim = shape.v_dim;
  rows.cos = DataOrNull<float>(angles.cos);
  rows.sin = DataOrNull<float>(angles.sin);
  rows.interleaved = angles.interleaved;
  return rows;
}

// Elements of a row of q, k, v and the projections together.
int64_t LatentRowWork(const LatentShape& shape) {
  return shape.num_heads * (2 * shape.head_dim() + shape.nope_dim + 2 * shape.v_dim);
}

Qkv JoinedHeads(const LatentProjections& projections, const LatentShape& shape,
                const RotaryAngles& angles) {
  const at::Tensor q = projections.q.contiguous();
  const at::Tensor shared = projections.shared.contiguous();
  const at::Tensor kv = projections.kv.contiguous();
  const int64_t num_tokens = q.size(0);
  Qkv out{EmptyTensor({num_tokens, shape.num_heads, shape.head_dim()}, q.options()),
          EmptyTensor({num_tokens, shape.num_heads, shape.head_dim()}, q.options()),
          EmptyTensor({num_tokens, shape.num_heads, shape.v_dim}, q.options())};
  const kernels::LatentRows rows = LatentRowsOf(q, shape, angles);
  const kernels::LatentInputs in{q.const_data_ptr(), shared.const_data_ptr(), kv.const_data_ptr()};
  const kernels::LatentHeads to{out.q.mutable_data_ptr(), out.k.mutable_data_ptr(),
                                out.v.mutable_data_ptr()};
  ForRows(num_tokens, LatentRowWork(shape),
          [&](int64_t begin, int64_t end) { kernels::JoinLatentHeads(rows, in, to, begin, end); });
  return out;
}

struct JoinFunction : torch::autograd::Function<JoinFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& shared,
                               const at::Tensor& kv, const LatentShape& shape,
                               const RotaryAngles& angles) {
    Qkv out = JoinedHeads({q, shared, kv}, shape, angles);
    ctx->save_for_backward({angles.cos, angles.sin});
    ctx->saved_data["interleaved"] = angles.interleaved;
    ctx->saved_data["shape"] =
        std::vector<int64_t>{shape.num_heads, shape.nope_dim, shape.rope_dim, shape.v_dim};
    return {std::move(out.q), std::move(out.k), std::move(out.v)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<int64_t> sizes = ctx->saved_data["shape"].toIntVector();
    const LatentShape shape{sizes[0], sizes[1], sizes[2], sizes[3]};
    const RotaryAngles angles{saved[0], saved[1], ctx->saved_data["interleaved"].toBool()};
    const at::Tensor grad_q = grads[0].contiguous();
    const at::Tensor grad_k = grads[1].contiguous();
    const at::Tensor grad_v = grads[2].contiguous();
    const int64_t num_tokens = grad_q.size(0);
    const auto options = grad_q.options();
    at::Tensor q = at::empty({num_tokens, shape.num_heads * shape.head_dim()}, options);
    at::Tensor shared = at::empty({num_tokens, shape.rope_dim}, options);
    at::Tensor kv =
        at::empty({num_tokens, shape.num_heads * (shape.nope_dim + shape.v_dim)}, options);
    const kernels::LatentRows rows = LatentRowsOf(grad_q, shape, angles);
    const kernels::LatentGradOutputs from{grad_q.const_data_ptr(), grad_k.const_data_ptr(),
                                          grad_v.const_data_ptr()};
    const kernels::LatentGradInputs to{q.mutable_data_ptr(), shared.mutable_data_ptr(),
                                       kv.mutable_data_ptr()};
    ForRows(num_tokens, LatentRowWork(shape), [&](int64_t begin, int64_t end) {
      kernels::JoinLatentHeadsBackward(rows, from, to, begin, end);
    });
    return {q, shared, kv, at::Tensor(), at::Tensor()};
  }
};

bool IsFloatOrUndefined(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.scalar_type() == at::kFloat;
}

}  // namespace

Qkv JoinLatentHeads(const LatentProjections& projections, const LatentShape& shape,
                    const RotaryAngles& angles) {
  const auto& [q, shared, kv] = projections;
  if (!KernelsTake({q, shared, kv}) || !IsFloatOrUndefined(angles.cos)) {
    return eager::JoinLatentHeads(projections, shape, angles);
  }
  if (!NeedsGraph({q, shared, kv})) return JoinedHeads(projections, shape, angles);
  variable_list out = JoinFunction::apply(q, shared, kv, shape, angles);
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

}  // namespace tandem::model
