#include "common/model/grouped_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_experts.h"
#include "common/model/device_row_ops.h"
#include "common/model/linear.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The rows of each expert that has any. first: on the CPU.
template <typename Body>
void ForExperts(const at::Tensor& first, const Body& body) {
  const int64_t* const begin = first.const_data_ptr<int64_t>();
  for (int64_t e = 0; e + 1 < first.numel(); ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    if (count > 0) body(e, begin[e], count);
  }
}

at::Tensor Forward(const at::Tensor& x, const at::Tensor& first,
                   const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                   const std::vector<const kernels::PackedMatrix*>& packed,
                   bool has_others = false) {
  if (device::KernelsTake({x})) {
    return device::GroupedProduct(x, first, weights, biases, has_others);
  }
  at::Tensor out =
      EmptyTensor({x.size(0), weights.front().size(0)}, x.options().requires_grad(false));
  ForExperts(first, [&](int64_t e, int64_t begin, int64_t count) {
    at::Tensor of_expert = out.narrow(0, begin, count);
    const at::Tensor weight = packed[e] == nullptr ? weights[e].contiguous() : weights[e];
    MultiplyTransposed(x.narrow(0, begin, count), weight, of_expert, packed[e],
                       biases.empty() ? at::Tensor() : biases[e].contiguous());
  });
  return out;
}

// The gradients of all experts in a few launches, without waiting for `first`. weights: [experts, out, in];
// result: of x, the weights, and the biases if there are any.
void AllAtOnce(const AutogradContext& ctx, const at::Tensor& x, const at::Tensor& grad,
               const at::Tensor& first, const at::Tensor& weights, variable_list& result) {
  const auto num_experts = static_cast<size_t>(weights.size(0));
  const auto wanted = [&](size_t begin) {
    for (size_t e = 0; e < num_experts; ++e) {
      if (ctx.needs_input_grad(begin + e)) return true;
    }
    return false;
  };
  const auto give = [&](const at::Tensor& all, size_t begin) {
    for (size_t e = 0; e < num_experts; ++e) {
      if (ctx.needs_input_grad(begin + e)) result[begin + e] = all[static_cast<int64_t>(e)];
    }
  };
  if (ctx.needs_input_grad(0)) result[0] = device::GroupedInputGradient(grad, first, weights);
  if (wanted(1)) give(device::GroupedWeightGradient(grad, x, first), 1);
  const size_t biases = 1 + num_experts;
  if (result.size() > 2 + num_experts && wanted(biases)) {
    // A product with ones adds up the rows of each group; rows of products are a multiple of 8.
    const at::Tensor ones = at::ones({x.size(0), 8}, x.options());
    give(device::GroupedWeightGradient(grad, ones, first).select(2, 0), biases);
  }
}

struct GroupedLinearFunction : torch::autograd::Function<GroupedLinearFunction> {
  // inputs: x, then the weights, then the biases. `first`, which has no graph, is no input.
  static at::Tensor forward(AutogradContext* ctx, at::TensorList inputs, const at::Tensor& first) {
    variable_list saved = inputs.vec();
    const int64_t num_experts = first.numel() - 1;
    const auto end_of_weights = saved.begin() + 1 + num_experts;
    const std::vector<at::Tensor> weights(saved.begin() + 1, end_of_weights);
    const std::vector<at::Tensor> biases(end_of_weights, saved.end());
    const at::Tensor out =
        Forward(saved[0], first, weights, biases,
                std::vector<const kernels::PackedMatrix*>(weights.size(), nullptr));
    saved.erase(end_of_weights, saved.end());
    saved.push_back(first);
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["has_biases"] = !biases.empty();
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved.front();
    const at::Tensor& first = saved.back();
    const at::Tensor grad = grads[0].contiguous();
    const bool has_biases = ctx->saved_data["has_biases"].toBool();
    const int64_t num_experts = first.numel() - 1;
    // Gradients of x, the weights, the biases and `first`.
    variable_list result(2 + num_experts * (has_biases ? 2 : 1));
    const std::vector<at::Tensor> weights(saved.begin() + 1, saved.begin() + 1 + num_experts);
    const at::Tensor stack = device::WeightsForGroupedGradients(x, grad, weights);
    if (stack.defined()) {
      AllAtOnce(*ctx, x, grad, first, stack, result);
      return result;
    }
    const at::Tensor on_host = first.cpu();
    if (ctx->needs_input_grad(0)) result[0] = at::empty_like(x);
    ForExperts(on_host, [&](int64_t e, int64_t begin, int64_t count) {
      const at::Tensor weight = saved[e + 1].contiguous();
      const at::Tensor of_expert = grad.narrow(0, begin, count);
      if (ctx->needs_input_grad(0)) {
        at::Tensor grad_x = result[0].narrow(0, begin, count);
        MultiplyPlain(of_expert, weight, grad_x);
      }
      if (ctx->needs_input_grad(e + 1)) {
        result[e + 1] = at::empty_like(weight);
        MultiplyOverRows(of_expert, x.narrow(0, begin, count), result[e + 1]);
      }
      if (const int64_t bias = 1 + num_experts + e; has_biases && ctx->needs_input_grad(bias)) {
        result[bias] = SumOfRows(of_expert);
      }
    });
    return result;
  }
};

}  // namespace

at::Tensor GroupedLinear(const at::Tensor& x, const ExpertRows& rows,
                         const std::vector<at::Tensor>& weights,
                         const std::vector<at::Tensor>& biases,
                         const std::vector<const kernels::PackedMatrix*>& packed) {
  const at::Tensor in = x.contiguous();
  variable_list inputs = {in};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  const bool records =
      at::GradMode::is_enabled() &&
      std::any_of(inputs.begin(), inputs.end(), [](const auto& t) { return t.requires_grad(); });
  const at::Tensor first = device::KernelsTake({in}) ? rows.first.to(in.device()) : rows.first;
  if (records) return GroupedLinearFunction::apply(at::TensorList(inputs), first);
  return Forward(in, first, weights, biases, packed, rows.has_others);
}

}  // namespace tandem::model
