#include "common/model/delta_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/delta_sizes.h"
#include "common/model/device_delta_attention.h"
#include "common/model/worker_pool.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<kernels::DeltaSequence> SequencesOf(const at::Tensor& cu_seqlens) {
  const int64_t* const ends = cu_seqlens.const_data_ptr<int64_t>();
  std::vector<kernels::DeltaSequence> sequences;
  for (int64_t i = 0; i + 1 < cu_seqlens.numel(); ++i) {
    sequences.push_back({.first_row = ends[i], .num_rows = ends[i + 1] - ends[i]});
  }
  return sequences;
}

DeltaTensors Contiguous(const DeltaTensors& in) {
  return {in.projected.contiguous(), in.convolution.contiguous(), in.a_log.contiguous(),
          in.dt_bias.contiguous(), in.norm.contiguous()};
}

at::Tensor Computed(const DeltaSpec& spec, const DeltaTensors& tensors,
                    const at::Tensor& cu_seqlens) {
  at::Tensor out =
      at::empty({tensors.projected.size(0), spec.value_size()}, tensors.projected.options());
  kernels::DeltaForward(DeltaShapeOf(spec, tensors), SequencesOf(cu_seqlens),
                        out.mutable_data_ptr(), NumThreads(), AsParallelFor());
  return out;
}

// Returns the sum of the first dim's parts, in their order, in the type and shape of `like`.
at::Tensor SumOfParts(const at::Tensor& parts, const at::Tensor& like) {
  at::Tensor sum = at::zeros({like.numel()}, at::kFloat);
  const float* const from = parts.const_data_ptr<float>();
  float* const to = sum.mutable_data_ptr<float>();
  for (int64_t first = 0; first < parts.numel(); first += like.numel()) {
    for (int64_t i = 0; i < like.numel(); ++i) to[i] += from[first + i];
  }
  return sum.to(like.scalar_type()).view(like.sizes());
}

struct DeltaFunction : torch::autograd::Function<DeltaFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& projected,
                            const at::Tensor& convolution, const at::Tensor& a_log,
                            const at::Tensor& dt_bias, const at::Tensor& norm,
                            const at::Tensor& cu_seqlens, const DeltaSpec& spec) {
    ctx->save_for_backward({projected, convolution, a_log, dt_bias, norm, cu_seqlens});
    ctx->saved_data["sizes"] = std::vector<int64_t>{spec.num_key_heads, spec.num_value_heads,
                                                    spec.key_dim, spec.value_dim, spec.kernel_size};
    ctx->saved_data["norm_eps"] = spec.norm_eps;
    return Computed(spec, {projected, convolution, a_log, dt_bias, norm}, cu_seqlens);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const DeltaTensors tensors{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    const DeltaSpec spec{sizes[0], sizes[1], sizes[2],
                         sizes[3], sizes[4], ctx->saved_data["norm_eps"].toDouble()};
    const std::vector<kernels::DeltaSequence> sequences = SequencesOf(saved[5]);
    const auto count = static_cast<int64_t>(sequences.size());
    const at::Tensor grad_out = grads[0].contiguous();
    at::Tensor projected = at::empty(tensors.projected.sizes(), tensors.projected.options());
    // Zeros: an empty sequence has no task that writes its part.
    const auto parts = [count](const at::Tensor& of) {
      return at::zeros({count, of.numel()}, at::kFloat);
    };
    at::Tensor convolution = parts(tensors.convolution);
    at::Tensor a_log = parts(tensors.a_log);
    at::Tensor dt_bias = parts(tensors.dt_bias);
    at::Tensor norm = at::zeros({count * spec.num_value_heads, spec.value_dim}, at::kFloat);
    kernels::DeltaGradients gradients;
    gradients.grad_out = grad_out.const_data_ptr();
    gradients.grad_projected = projected.mutable_data_ptr();
    gradients.grad_convolution = convolution.mutable_data_ptr<float>();
    gradients.grad_a_log = a_log.mutable_data_ptr<float>();
    gradients.grad_dt_bias = dt_bias.mutable_data_ptr<float>();
    gradients.grad_norm = norm.mutable_data_ptr<float>();
    kernels::DeltaBackward(DeltaShapeOf(spec, tensors), sequences, gradients, NumThreads(),
                           AsParallelFor());
    return {projected,
            SumOfParts(convolution, tensors.convolution),
            SumOfParts(a_log, tensors.a_log),
            SumOfParts(dt_bias, tensors.dt_bias),
            SumOfParts(norm, tensors.norm),
            at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

kernels::DeltaShape DeltaShapeOf(const DeltaSpec& spec, const DeltaTensors& tensors) {
  kernels::DeltaShape shape = SizesOf(spec);
  shape.type = ElementOf(tensors.projected);
  shape.norm_eps = static_cast<float>(spec.norm_eps);
  shape.projected = tensors.projected.const_data_ptr();
  shape.row_stride = spec.projected_size();
  shape.convolution = tensors.convolution.const_data_ptr();
  shape.a_log = tensors.a_log.const_data_ptr();
  shape.dt_bias = tensors.dt_bias.const_data_ptr();
  shape.norm = tensors.norm.const_data_ptr();
  return shape;
}

at::Tensor DeltaAttention(const DeltaSpec& spec, const DeltaTensors& in,
                          const at::Tensor& cu_seqlens) {
  if (device::DeltaAttentionTakes(spec, in)) {
    return device::DeltaAttention(spec, in,
                                  device::DeltaPlacesOf(cu_seqlens, in.projected.device()));
  }
  if (!KernelsTake({in.projected, in.convolution, in.a_log, in.dt_bias, in.norm})) {
    return eager::DeltaAttention(spec, in, cu_seqlens);
  }
  const DeltaTensors tensors = Contiguous(in);
  const auto& [projected, convolution, a_log, dt_bias, norm] = tensors;
  if (!NeedsGraph({projected, convolution, a_log, dt_bias, norm})) {
    return Computed(spec, tensors, cu_seqlens);
  }
  return DeltaFunction::apply(projected, convolution, a_log, dt_bias, norm, cu_seqlens, spec);
}

}  // namespace tandem::model
