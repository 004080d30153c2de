#include "common/model/activation.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_row_gradients.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/kernel_function.h"
#include "common/model/kernels/activation_rows.h"
#include "common/model/optional_tensor.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// log(1 + exp(x)), without overflow.
double Softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

double SoftplusSlope(double x) { return 1.0 / (1.0 + std::exp(-x)); }

kernels::XieluSlopes SlopesOf(const at::Tensor& alphas) {
  if (!alphas.defined()) return {};
  return {static_cast<float>(Softplus(alphas[0].item<double>())),
          static_cast<float>(kernels::kXieluBeta + Softplus(alphas[1].item<double>()))};
}

int64_t SizeOf(const at::Tensor& in, bool gated) { return in.size(-1) / (gated ? 2 : 1); }

at::Tensor Forward(const at::Tensor& x, const ActivationFunction& function) {
  if (x.is_cuda()) return device::Activate(x, function);
  const at::Tensor in = x.contiguous();
  const int64_t size = SizeOf(in, function.gated);
  at::Tensor out = EmptyTensor({in.size(0), size}, in.options());
  kernels::ActivationForward args{ElementOf(in), function.activation, function.gated, size};
  args.in = in.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.xielu = SlopesOf(function.alphas);
  ForRows(in.size(0), in.size(-1),
          [&](int64_t begin, int64_t end) { kernels::ActivationRows(args, begin, end); });
  return out;
}

// The gradient of alphas from those of the slopes, float32 [2].
at::Tensor AlphaGradient(const at::Tensor& slope_grads, const at::Tensor& alphas) {
  at::Tensor grads = at::empty_like(slope_grads);
  for (int64_t i = 0; i < 2; ++i) {
    grads[i] = slope_grads[i].item<double>() * SoftplusSlope(alphas[i].item<double>());
  }
  return grads.to(alphas.scalar_type());
}

struct ActivateFunction : torch::autograd::Function<ActivateFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& in,
                            const std::optional<at::Tensor>& alphas, Activation activation,
                            bool gated) {
    const ActivationFunction function{activation, gated, alphas.value_or(at::Tensor())};
    ctx->save_for_backward({in, function.alphas});
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    ctx->saved_data["gated"] = gated;
    return Forward(in, function);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor in = saved[0].contiguous();
    const at::Tensor& alphas = saved[1];
    const auto activation = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    const bool gated = ctx->saved_data["gated"].toBool();
    if (in.is_cuda()) {
      return {device::ActivateBackward(in, {activation, gated, alphas}, grads[0]), at::Tensor(),
              at::Tensor(), at::Tensor()};
    }
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor grad_in = at::empty_like(in);
    const int64_t size = SizeOf(in, gated);
    kernels::ActivationBackward args{ElementOf(in), activation, gated, size};
    args.in = in.const_data_ptr();
    args.grad_out = grad.const_data_ptr();
    args.grad_in = grad_in.mutable_data_ptr();
    args.xielu = SlopesOf(alphas);
    if (!alphas.defined() || !ctx->needs_input_grad(1)) {
      ForRows(in.size(0), in.size(-1), [&](int64_t begin, int64_t end) {
        kernels::ActivationBackwardRows(args, begin, end, nullptr);
      });
      return {grad_in, at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const at::Tensor slope_grads = SumOverRows(
        in.size(0), 2,
        [&](int64_t begin, int64_t end, float* out) {
          kernels::ActivationBackwardRows(args, begin, end, out);
        },
        /*work=*/size);
    return {grad_in, AlphaGradient(slope_grads, alphas), at::Tensor(), at::Tensor()};
  }
};

at::Tensor WithGraph(const at::Tensor& in, const ActivationFunction& function) {
  return ActivateFunction::apply(in, OptionalOf(function.alphas), function.activation,
                                 function.gated);
}

at::Tensor OnDevice(const at::Tensor& in, const ActivationFunction& function) {
  if (!NeedsGraph({in, function.alphas})) return device::Activate(in, function);
  if (device::ActivationGradientsTake(function)) return WithGraph(in, function);
  variable_list inputs{in};
  if (function.alphas.defined()) inputs.push_back(function.alphas);
  const auto with = [activation = function.activation,
                     gated = function.gated](const variable_list& list) -> ActivationFunction {
    return {activation, gated, list.size() > 1 ? list[1] : at::Tensor()};
  };
  return RecordedKernels(
      inputs,
      [&](const variable_list& list) {
        return variable_list{device::Activate(list[0], with(list))};
      },
      [with](const variable_list& list) {
        return variable_list{eager::Activate(list[0], with(list))};
      })[0];
}

}  // namespace

at::Tensor Activate(const at::Tensor& in, const ActivationFunction& function) {
  if (device::KernelsTake({in, function.alphas})) return OnDevice(in, function);
  if (!KernelsTake({in, function.alphas})) return eager::Activate(in, function);
  if (!NeedsGraph({in, function.alphas})) return Forward(in, function);
  return WithGraph(in, function);
}

}  // namespace tandem::model
