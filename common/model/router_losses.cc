#include "common/model/router_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "common/model/cpu_dispatch.h"

namespace tandem::model {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RouterLossFunction : torch::autograd::Function<RouterLossFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const RouterLosses* losses) {
    ctx->save_for_backward({logits});
    ctx->saved_data["losses"] = reinterpret_cast<int64_t>(losses);
    return logits.detach();  // in the same memory
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto* losses = reinterpret_cast<const RouterLosses*>(ctx->saved_data["losses"].toInt());
    at::Tensor own = losses->Gradient(ctx->get_saved_variables()[0]);
    return {grads[0].defined() ? own.add_(grads[0]) : own, at::Tensor()};
  }
};

RouterLosses::RouterLosses(const RouterLossFactors& factors, int64_t num_experts, at::Device device)
    : factors_(factors),
      num_experts_(num_experts),
      sums_(at::zeros({2 * num_experts + 2}, at::dtype(at::kDouble).device(device))),
      values_(at::zeros({2}, at::dtype(at::kDouble).device(device))) {}

void RouterLosses::Begin(at::Tensor token_weights, double total_rows) {
  token_weights_ = std::move(token_weights);
  total_rows_ = total_rows;
  // Another tensor: the sums of the last micro-batch may still be read on the device.
  sums_ = at::zeros_like(sums_);
}

void RouterLosses::Add(const at::Tensor& logits, const at::Tensor& experts) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = logits.detach();
  const at::Tensor weights = token_weights_.to(values.scalar_type());
  const at::Tensor counted =
      token_weights_.to(at::kDouble).unsqueeze(1).expand(experts.sizes()).flatten();
  sums_.narrow(0, 0, num_experts_).index_add_(0, experts.flatten(), counted);
  sums_.narrow(0, num_experts_, num_experts_).add_(at::mv(at::softmax(values, 1).t(), weights));
  sums_[2 * num_experts_].add_((at::logsumexp(values, 1).square() * weights).sum());
  sums_[2 * num_experts_ + 1].add_(weights.sum());
}

at::Tensor RouterLosses::Attach(const at::Tensor& logits) const {
  return NeedsGraph({logits}) ? RouterLossFunction::apply(logits, this) : logits;
}

void RouterLosses::Finish() {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = sums_[2 * num_experts_ + 1].clamp_min(1.0);
  const at::Tensor total = total_rows_ > 0 ? at::full_like(rows, total_rows_) : rows;
  const at::Tensor loads = sums_.narrow(0, 0, num_experts_) / rows;
  const at::Tensor shares = sums_.narrow(0, num_experts_, num_experts_);
  const auto experts = static_cast<double>(num_experts_);
  values_[0].add_((loads * shares).sum() * experts / total);
  values_[1].add_(sums_[2 * num_experts_] / total);
  balance_gradient_ = loads * (factors_.balance * experts) / total;
  z_gradient_ = (2.0 * factors_.z) / total;
}

RouterLosses::Values RouterLosses::Take() {
  const at::Tensor values = std::exchange(values_, at::zeros_like(values_)).to(at::kCPU);
  const double* const value = values.const_data_ptr<double>();
  return {value[0], value[1]};
}

at::Tensor RouterLosses::Gradient(const at::Tensor& logits) const {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = logits.scalar_type();
  const at::Tensor shares = at::softmax(logits, 1);
  const at::Tensor slopes = balance_gradient_.to(type);
  // d (softmax . slopes) / d logits = softmax * (slopes - softmax . slopes)
  at::Tensor factors = slopes.unsqueeze(0) - at::mv(shares, slopes).unsqueeze(1);
  if (factors_.z != 0) {
    factors.add_(at::logsumexp(logits, 1, /*keepdim=*/true) * z_gradient_.to(type));
  }
  return factors.mul_(shares).mul_(token_weights_.to(type).unsqueeze(1));
}

}  // namespace tandem::model
