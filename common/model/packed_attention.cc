#include "common/model/packed_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_packed_attention.h"
#include "common/model/eager_ops.h"
#include "common/model/kernel_function.h"
#include "common/model/kernels/attention.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The layout that the kernels need for q, k and v: the heads of a token are contiguous.
at::Tensor WithHeadsTogether(const at::Tensor& x) {
  const bool together = x.stride(2) == 1 && x.stride(1) == x.size(2);
  return together ? x : x.contiguous();
}

const kernels::ParallelFor& Threads() {
  static const kernels::ParallelFor threads = ForTasks;
  return threads;
}

kernels::AttentionShape ShapeOf(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& cu_seqlens, const at::Tensor& prefixes,
                                double scale, int64_t window) {
  kernels::AttentionShape shape;
  shape.type = ElementOf(q);
  shape.num_heads = q.size(1);
  shape.num_kv_heads = k.size(1);
  shape.head_dim = q.size(2);
  shape.scale = static_cast<float>(scale);
  shape.window = window;
  shape.num_sequences = cu_seqlens.numel() - 1;
  shape.cu_seqlens = cu_seqlens.const_data_ptr<int64_t>();
  if (prefixes.defined()) shape.prefixes = prefixes.const_data_ptr<int64_t>();
  shape.q = q.const_data_ptr();
  shape.k = k.const_data_ptr();
  shape.v = v.const_data_ptr();
  shape.q_stride = q.stride(0);
  shape.k_stride = k.stride(0);
  shape.v_stride = v.stride(0);
  return shape;
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& cu_seqlens,
                            const std::optional<at::Tensor>& shared, double scale, int64_t window) {
    const at::Tensor prefixes = shared.value_or(at::Tensor());
    at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
    at::Tensor log_sum_exp = at::empty({q.size(0), q.size(1)}, at::kFloat);
    kernels::AttentionForward(ShapeOf(q, k, v, cu_seqlens, prefixes, scale, window),
                              out.mutable_data_ptr(), log_sum_exp.mutable_data_ptr<float>(),
                              at::get_num_threads(), Threads());
    ctx->save_for_backward({q, k, v, cu_seqlens, out, log_sum_exp, prefixes});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["window"] = window;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor grad_out = grads[0].contiguous();
    at::Tensor grad_q = at::empty(q.sizes(), q.options());
    at::Tensor grad_k = at::empty(k.sizes(), k.options());
    at::Tensor grad_v = at::empty(k.sizes(), k.options());
    kernels::AttentionGradients gradients;
    gradients.out = saved[4].const_data_ptr();
    gradients.log_sum_exp = saved[5].const_data_ptr<float>();
    gradients.grad_out = grad_out.const_data_ptr();
    gradients.grad_q = grad_q.mutable_data_ptr();
    gradients.grad_k = grad_k.mutable_data_ptr();
    gradients.grad_v = grad_v.mutable_data_ptr();
    kernels::AttentionBackward(
        ShapeOf(q, k, saved[2], saved[3], saved[6], ctx->saved_data["scale"].toDouble(),
                ctx->saved_data["window"].toInt()),
        gradients, at::get_num_threads(), Threads());
    return {grad_q, grad_k, grad_v, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor PackedAttention::Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v, const AttentionParams& params) {
  if (implementation_ == Implementation::kFast && device::PackedAttentionTakes(q, k, v)) {
    TORCH_CHECK(!prefixes_.defined(), "shared prefixes are for the CPU's kernels");
    if (!places_.defined()) places_ = device::PackedPlaces(cu_seqlens_, q.device());
    const auto kernels = [&](const variable_list& in) {
      return variable_list{device::PackedAttention(in[0], in[1], in[2], places_, params)};
    };
    if (!NeedsGraph({q, k, v})) return kernels({q, k, v})[0];
    return RecordedKernels(
        {q, k, v}, kernels, [params, cu_seqlens = cu_seqlens_](const variable_list& in) {
          return variable_list{eager::PackedAttention(in[0], in[1], in[2], cu_seqlens, params)};
        })[0];
  }
  const bool plain = params.softcap == 0 && !params.sinks.has_value();
  if (implementation_ == Implementation::kEager || !plain || !KernelsTake({q, k, v})) {
    TORCH_CHECK(!prefixes_.defined(), "shared prefixes are for the CPU's kernels");
    return eager::PackedAttention(q, k, v, cu_seqlens_, params);
  }
  const at::Tensor queries = WithHeadsTogether(q);
  const at::Tensor keys = WithHeadsTogether(k);
  const at::Tensor values = WithHeadsTogether(v);
  if (NeedsGraph({q, k, v})) {
    std::optional<at::Tensor> shared;
    if (prefixes_.defined()) shared = prefixes_;
    return AttentionFunction::apply(queries, keys, values, cu_seqlens_, shared, params.scale,
                                    params.window);
  }
  at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  kernels::AttentionForward(
      ShapeOf(queries, keys, values, cu_seqlens_, prefixes_, params.scale, params.window),
      out.mutable_data_ptr(), nullptr, at::get_num_threads(), Threads());
  return out;
}

at::Tensor PackedPositions(const at::Tensor& cu_seqlens) {
  const int64_t num_sequences = cu_seqlens.numel() - 1;
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  at::Tensor positions = at::empty({starts[num_sequences]}, at::kLong);
  int64_t* const out = positions.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_sequences; ++i) {
    for (int64_t t = starts[i]; t < starts[i + 1]; ++t) out[t] = t - starts[i];
  }
  return positions;
}

}  // namespace tandem::model
