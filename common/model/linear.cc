#include "common/model/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_row_ops.h"
#include "common/model/kernels/row_ops.h"
#include "common/model/optional_tensor.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Element (i, j) of a matrix with one stride of 1; `transposed` swaps rows and columns.
kernels::ConstMatrix View(const at::Tensor& matrix, bool transposed) {
  const int64_t stride = matrix.size(1);
  return {matrix.const_data_ptr(), ElementOf(matrix), transposed ? 1 : stride,
          transposed ? stride : 1};
}

kernels::Product Into(at::Tensor& out, int64_t k) {
  kernels::Product product;
  product.m = out.size(0);
  product.n = out.size(1);
  product.k = k;
  product.c = out.mutable_data_ptr();
  product.c_type = ElementOf(out);
  product.c_row_stride = out.size(1);
  return product;
}

// The weight [n, k], transposed; a packed weight may have no other data.
void SetRightSide(const at::Tensor& weight, const kernels::PackedMatrix* packed,
                  kernels::Product& product) {
  product.packed_b = packed;
  if (packed == nullptr) product.b = View(weight, true);
}

// Our kernels also mix types: logits and their gradients stay float32 beside bfloat16 weights.
bool OursTake(const at::Tensor& a, const at::Tensor& b) {
  return KernelsTake({a}) && KernelsTake({b});
}

at::Tensor Forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   at::ScalarType type, const kernels::PackedMatrix* packed) {
  const at::Tensor in = x.contiguous();
  const at::Tensor added = ContiguousOrUndefined(bias);
  at::Tensor out = EmptyTensor({in.size(0), weight.size(0)}, in.options().dtype(type));
  const at::Tensor matrix = packed == nullptr ? weight.contiguous() : weight;
  if (in.is_cuda()) {
    device::RowProduct(in, matrix, added, out);
    return out;
  }
  kernels::Product product = Into(out, in.size(1));
  product.a = View(in, false);
  SetRightSide(matrix, packed, product);
  if (added.defined()) product.bias = added.const_data_ptr();
  Multiply(product);
  return out;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, at::ScalarType type) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["has_bias"] = bias.has_value();
    return Forward(x, weight, bias.value_or(at::Tensor()), type, nullptr);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor x = saved[0].contiguous();
    const at::Tensor weight = saved[1].contiguous();
    const at::Tensor grad = grads[0].contiguous();
    variable_list result(4);
    if (ctx->needs_input_grad(0)) {
      result[0] = at::empty_like(x);
      MultiplyPlain(grad, weight, result[0]);
    }
    if (ctx->needs_input_grad(1)) {
      result[1] = at::empty_like(weight);
      MultiplyOverRows(grad, x, result[1]);
    }
    // needs_input_grad() counts only the defined tensors.
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) {
      result[2] = SumOfRows(grad);
    }
    return result;
  }
};

}  // namespace

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, const kernels::PackedMatrix* packed) {
  const at::Tensor added = bias.value_or(at::Tensor());
  if (device::FewRowsProductTakes(x, weight, added)) {
    return device::FewRowsProduct(x, weight, added, x.scalar_type());
  }
  if (!KernelsTake({x, weight, added}) && !device::ProductsTake({x, weight, added})) {
    return at::linear(x, weight, bias);
  }
  if (NeedsGraph({x, weight, added})) {
    return LinearFunction::apply(x, weight, bias, x.scalar_type());
  }
  return Forward(x, weight, added, x.scalar_type(), packed);
}

at::Tensor LinearInFloat32(const at::Tensor& x, const at::Tensor& weight,
                           const kernels::PackedMatrix* packed) {
  if (device::FewRowsProductTakes(x, weight, {})) {
    return device::FewRowsProduct(x, weight, {}, at::kFloat);
  }
  if (!KernelsTake({x, weight}) && !device::ProductsTake({x, weight})) {
    const bool in_bfloat16 =
        x.is_cuda() && x.scalar_type() == at::kBFloat16 && weight.scalar_type() == at::kBFloat16;
    // cuBLAS's float32 sums, not rounded. Passes of the trainer have one way, as with few rows.
    if (in_bfloat16 && c10::InferenceMode::is_enabled()) {
      return at::mm(x, weight.t(), at::kFloat);
    }
    const auto wide = [](const at::Tensor& t) {
      return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat);
    };
    return at::linear(wide(x), wide(weight));
  }
  if (NeedsGraph({x, weight})) {
    return LinearFunction::apply(x, weight, std::optional<at::Tensor>(), at::kFloat);
  }
  return Forward(x, weight, at::Tensor(), at::kFloat, packed);
}

void MultiplyTransposed(const at::Tensor& x, const at::Tensor& weight, at::Tensor& out,
                        const kernels::PackedMatrix* packed, const at::Tensor& bias) {
  if (device::ProductsTake({x, weight})) {
    device::RowProduct(x, weight, bias, out);
    return;
  }
  if (!OursTake(x, weight)) {
    const at::Tensor in = x.to(weight.scalar_type());
    out.copy_(bias.defined() ? at::addmm(bias, in, weight.t()) : at::mm(in, weight.t()));
    return;
  }
  kernels::Product product = Into(out, x.size(1));
  product.a = View(x, false);
  SetRightSide(weight, packed, product);
  if (bias.defined()) product.bias = bias.const_data_ptr();
  Multiply(product);
}

void MultiplyPlain(const at::Tensor& grad, const at::Tensor& weight, at::Tensor& out) {
  if (!OursTake(grad, weight)) {
    out.copy_(at::mm(grad.to(weight.scalar_type()), weight));
    return;
  }
  kernels::Product product = Into(out, grad.size(1));
  product.a = View(grad, false);
  product.b = View(weight, false);
  Multiply(product);
}

void MultiplyOverRows(const at::Tensor& grad, const at::Tensor& x, at::Tensor& out,
                      bool accumulate) {
  if (!OursTake(grad, x)) {
    const at::Tensor columns = grad.to(x.scalar_type()).t();
    if (accumulate && x.device().type() == at::kCUDA && x.scalar_type() == at::kBFloat16 &&
        out.scalar_type() == at::kFloat) {
      at::addmm_out(out, out, columns, x, at::kFloat);  // cuBLAS's float32 sums, not rounded
      return;
    }
    const at::Tensor result = at::mm(columns, x);
    if (accumulate) {
      out.add_(result);
    } else {
      out.copy_(result);
    }
    return;
  }
  kernels::Product product = Into(out, grad.size(0));
  product.a = View(grad, true);
  product.b = View(x, false);
  product.accumulate = accumulate;
  Multiply(product);
}

at::Tensor SumOfRows(const at::Tensor& grad) {
  if (!KernelsTake({grad})) return grad.sum(0);
  const at::Tensor rows = grad.contiguous();
  const int64_t size = rows.size(1);
  return SumOverRows(rows.size(0), size,
                     [&](int64_t begin, int64_t end, float* out) {
                       kernels::AddRowsTo(ElementOf(rows), size, rows.const_data_ptr(), begin, end,
                                          out);
                     })
      .to(rows.scalar_type());
}

}  // namespace tandem::model
