#include "common/model/swiglu.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

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

at::Tensor Forward(const at::Tensor& gate_up) {
  const at::Tensor in = gate_up.contiguous();
  const int64_t size = in.size(-1) / 2;
  at::Tensor out = EmptyTensor({in.size(0), size}, in.options());
  ForRows(in.size(0), 2 * size, [&](int64_t begin, int64_t end) {
    kernels::SwiGluRows(ElementOf(in), size, in.const_data_ptr(), out.mutable_data_ptr(), begin,
                        end);
  });
  return out;
}

struct SwiGluFunction : torch::autograd::Function<SwiGluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up) {
    ctx->save_for_backward({gate_up});
    return Forward(gate_up);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor in = ctx->get_saved_variables()[0].contiguous();
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor grad_in = at::empty_like(in);
    const int64_t size = in.size(-1) / 2;
    ForRows(in.size(0), 2 * size, [&](int64_t begin, int64_t end) {
      kernels::SwiGluBackwardRows(ElementOf(in), size, in.const_data_ptr(), grad.const_data_ptr(),
                                  grad_in.mutable_data_ptr(), begin, end);
    });
    return {grad_in};
  }
};

}  // namespace

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  if (device::KernelsTake({gate_up})) {
    if (!NeedsGraph({gate_up})) return device::SwiGlu(gate_up);
    return RecordedKernels(
        {gate_up}, [](const variable_list& in) { return variable_list{device::SwiGlu(in[0])}; },
        [](const variable_list& in) { return variable_list{eager::SwiGlu(in[0])}; })[0];
  }
  if (!KernelsTake({gate_up})) return eager::SwiGlu(gate_up);
  if (NeedsGraph({gate_up})) return SwiGluFunction::apply(gate_up);
  return Forward(gate_up);
}

}  // namespace tandem::model
