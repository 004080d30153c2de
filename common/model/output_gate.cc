#include "common/model/output_gate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/model/cpu_dispatch.h"
#include "common/model/eager_ops.h"
#include "common/model/kernels/gate_rows.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor Gated(const at::Tensor& x, const at::Tensor& gate) {
  at::Tensor out = EmptyAs(x);
  kernels::GateForward args{ElementOf(x), x.size(1)};
  args.x = x.const_data_ptr();
  args.gate = gate.const_data_ptr();
  args.out = out.mutable_data_ptr();
  ForRows(x.size(0), x.size(1),
          [&](int64_t begin, int64_t end) { kernels::GateRows(args, begin, end); });
  return out;
}

struct GateFunction : torch::autograd::Function<GateFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& gate) {
    ctx->save_for_backward({x, gate});
    return Gated(x, gate);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& gate = saved[1];
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor grad_x = at::empty_like(x);
    at::Tensor grad_gate = at::empty_like(gate);
    kernels::GateBackward args{ElementOf(x), x.size(1)};
    args.x = x.const_data_ptr();
    args.gate = gate.const_data_ptr();
    args.grad_out = grad.const_data_ptr();
    args.grad_x = grad_x.mutable_data_ptr();
    args.grad_gate = grad_gate.mutable_data_ptr();
    ForRows(x.size(0), 2 * x.size(1),
            [&](int64_t begin, int64_t end) { kernels::GateBackwardRows(args, begin, end); });
    return {grad_x, grad_gate};
  }
};

}  // namespace

at::Tensor GateBySigmoid(const at::Tensor& x, const at::Tensor& gate) {
  if (!KernelsTake({x, gate})) {
    return (eager::Wide(x) * at::sigmoid(eager::Wide(gate))).to(x.scalar_type());
  }
  const at::Tensor rows = x.contiguous();
  const at::Tensor gates = gate.contiguous();
  if (!NeedsGraph({x, gate})) return Gated(rows, gates);
  return GateFunction::apply(rows, gates);
}

}  // namespace tandem::model
