#include "common/model/kernel_function.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// State that a graph node keeps of an operation.
struct KeptOperation : torch::CustomClassHolder {
  explicit KeptOperation(TensorOperation operation) : call(std::move(operation)) {}
  TensorOperation call;
};

struct KernelFunction : torch::autograd::Function<KernelFunction> {
  static variable_list forward(AutogradContext* ctx, at::TensorList inputs,
                               const TensorOperation& kernels,
                               const c10::intrusive_ptr<KeptOperation>& reference) {
    ctx->save_for_backward(inputs.vec());
    ctx->saved_data["reference"] = c10::IValue::make_capsule(reference);
    return kernels(inputs.vec());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto reference =
        c10::static_intrusive_pointer_cast<KeptOperation>(ctx->saved_data["reference"].toCapsule());
    const at::AutoGradMode with_graph(true);
    variable_list inputs;
    variable_list wanted;
    std::vector<size_t> places;
    for (const at::Tensor& saved : ctx->get_saved_variables()) {
      const size_t place = inputs.size();
      inputs.push_back(saved.detach());
      if (!ctx->needs_input_grad(place)) continue;
      inputs.back().requires_grad_();
      wanted.push_back(inputs.back());
      places.push_back(place);
    }
    variable_list outputs;
    variable_list output_grads;
    const variable_list computed = reference->call(inputs);
    for (size_t i = 0; i < computed.size(); ++i) {
      if (!computed[i].requires_grad() || !grads[i].defined()) continue;
      outputs.push_back(computed[i]);
      output_grads.push_back(grads[i]);
    }
    variable_list result(inputs.size() + 2);  // the two operations have no gradient
    if (outputs.empty() || wanted.empty()) return result;
    const variable_list found =
        torch::autograd::grad(outputs, wanted, output_grads, /*retain_graph=*/std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < found.size(); ++i) result[places[i]] = found[i];
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> RecordedKernels(const std::vector<at::Tensor>& inputs,
                                        const TensorOperation& kernels, TensorOperation reference) {
  return KernelFunction::apply(at::TensorList(inputs), kernels,
                               c10::make_intrusive<KeptOperation>(std::move(reference)));
}

}  // namespace tandem::model
