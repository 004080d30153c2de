#include "common/model/norm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/kernel_function.h"
#include "common/model/kernels/row_ops.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Normed {
  at::Tensor sum;  // x, or x + delta
  at::Tensor out;
  at::Tensor inverse_rms;  // float32 [num_tokens], if requested
};

Normed Forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps,
               bool for_backward) {
  const at::Tensor in = x.contiguous();
  const at::Tensor added = delta.defined() ? delta.contiguous() : delta;
  const at::Tensor scale = weight.contiguous();
  Normed normed{added.defined() ? EmptyAs(in) : in, EmptyAs(in), {}};
  const int64_t size = in.size(-1);
  const int64_t rows = in.numel() / size;
  kernels::RmsNormForward args{ElementOf(in), size, static_cast<float>(eps)};
  args.x = in.const_data_ptr();
  args.weight = scale.const_data_ptr();
  args.out = normed.out.mutable_data_ptr();
  if (added.defined()) {
    args.delta = added.const_data_ptr();
    args.sum = normed.sum.mutable_data_ptr();
  }
  if (for_backward) {
    normed.inverse_rms = at::empty({rows}, at::kFloat);
    args.inverse_rms = normed.inverse_rms.mutable_data_ptr<float>();
  }
  ForRows(rows, size, [&](int64_t begin, int64_t end) { kernels::RmsNormRows(args, begin, end); });
  return normed;
}

// Gradients of x (and of a delta, the same) and weight; the latter is undefined unless requested.
std::pair<at::Tensor, at::Tensor> Backward(const variable_list& saved, const at::Tensor& grad_out,
                                           const at::Tensor& grad_sum, bool want_weight) {
  const at::Tensor& x = saved[0];
  const at::Tensor weight = saved[1].contiguous();
  const at::Tensor grad = grad_out.contiguous();
  const at::Tensor extra = grad_sum.defined() ? grad_sum.contiguous() : grad_sum;
  at::Tensor grad_x = at::empty_like(x);
  const int64_t size = x.size(-1);
  const int64_t rows = x.numel() / size;
  kernels::RmsNormBackward args{ElementOf(x), size};
  args.x = x.const_data_ptr();
  args.weight = weight.const_data_ptr();
  args.inverse_rms = saved[2].const_data_ptr<float>();
  args.grad_out = grad.const_data_ptr();
  args.grad_sum = extra.defined() ? extra.const_data_ptr() : nullptr;
  args.grad_x = grad_x.mutable_data_ptr();
  if (!want_weight) {
    ForRows(rows, size, [&](int64_t begin, int64_t end) {
      kernels::RmsNormBackwardRows(args, begin, end, nullptr);
    });
    return {std::move(grad_x), at::Tensor()};
  }
  const at::Tensor grad_weight =
      SumOverRows(rows, size, [&](int64_t begin, int64_t end, float* out) {
        kernels::RmsNormBackwardRows(args, begin, end, out);
      });
  return {std::move(grad_x), grad_weight.to(weight.scalar_type())};
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    Normed normed = Forward(x, at::Tensor(), weight, eps, /*for_backward=*/true);
    ctx->save_for_backward({normed.sum, weight, normed.inverse_rms});
    return normed.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto [grad_x, grad_weight] =
        Backward(ctx->get_saved_variables(), grads[0], at::Tensor(), ctx->needs_input_grad(1));
    return {grad_x, grad_weight, at::Tensor()};
  }
};

struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& delta,
                               const at::Tensor& weight, double eps) {
    Normed normed = Forward(x, delta, weight, eps, /*for_backward=*/true);
    ctx->save_for_backward({normed.sum, weight, normed.inverse_rms});
    ctx->set_materialize_grads(false);
    return {normed.sum, normed.out};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[1].defined()) return {grads[0], grads[0], at::Tensor(), at::Tensor()};
    auto [grad_x, grad_weight] =
        Backward(ctx->get_saved_variables(), grads[1], grads[0], ctx->needs_input_grad(2));
    return {grad_x, grad_x, grad_weight, at::Tensor()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (device::KernelsTake({x, weight})) {
    const auto kernels = [eps](const variable_list& in) {
      return variable_list{device::AddRmsNorm(in[0], at::Tensor(), in[1], eps).normed};
    };
    if (!NeedsGraph({x, weight})) return kernels({x, weight})[0];
    return RecordedKernels({x, weight}, kernels, [eps](const variable_list& in) {
      return variable_list{eager::RmsNorm(in[0], in[1], eps)};
    })[0];
  }
  if (!KernelsTake({x, weight})) return eager::RmsNorm(x, weight, eps);
  if (NeedsGraph({x, weight})) return RmsNormFunction::apply(x, weight, eps);
  return Forward(x, at::Tensor(), weight, eps, /*for_backward=*/false).out;
}

at::Tensor Sum(const Residual& residual) {
  const auto& [x, delta] = residual;
  if (!delta.defined()) return x;
  if (!KernelsTake({x, delta}) || NeedsGraph({x, delta})) return at::add(x, delta);
  const at::Tensor a = x.contiguous();
  const at::Tensor b = delta.contiguous();
  at::Tensor sum = EmptyAs(a);
  const int64_t size = a.size(-1);
  ForRows(a.numel() / size, size, [&](int64_t begin, int64_t end) {
    kernels::AddRows(ElementOf(a), size, a.const_data_ptr(), b.const_data_ptr(),
                     sum.mutable_data_ptr(), begin, end);
  });
  return sum;
}

ResidualNorm AddRmsNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps) {
  if (!delta.defined()) return {x, RmsNorm(x, weight, eps)};
  const auto in_aten = [eps](const variable_list& in) {
    at::Tensor residual = at::add(in[0], in[1]);
    at::Tensor normed = eager::RmsNorm(residual, in[2], eps);
    return variable_list{std::move(residual), std::move(normed)};
  };
  if (device::KernelsTake({x, delta, weight})) {
    if (!NeedsGraph({x, delta, weight})) return device::AddRmsNorm(x, delta, weight, eps);
    const auto kernels = [eps](const variable_list& in) {
      ResidualNorm result = device::AddRmsNorm(in[0], in[1], in[2], eps);
      return variable_list{std::move(result.residual), std::move(result.normed)};
    };
    variable_list outputs = RecordedKernels({x, delta, weight}, kernels, in_aten);
    return {std::move(outputs[0]), std::move(outputs[1])};
  }
  if (!KernelsTake({x, delta, weight})) {
    variable_list outputs = in_aten({x, delta, weight});
    return {std::move(outputs[0]), std::move(outputs[1])};
  }
  if (NeedsGraph({x, delta, weight})) {
    variable_list outputs = AddRmsNormFunction::apply(x, delta, weight, eps);
    return {std::move(outputs[0]), std::move(outputs[1])};
  }
  Normed normed = Forward(x, delta, weight, eps, /*for_backward=*/false);
  return {std::move(normed.sum), std::move(normed.out)};
}

}  // namespace tandem::model
