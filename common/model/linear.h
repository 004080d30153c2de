// The matrix products of the model, in float32 and bfloat16: on the CPU the kernels of gemm.h; on a
// GPU ATen's, or, forward with exact numerics, the kernel of device_row_ops.h.
#ifndef TANDEM_COMMON_MODEL_LINEAR_H_
#define TANDEM_COMMON_MODEL_LINEAR_H_

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/model/kernels/gemm.h"

namespace tandem::model {

// Returns x weight^T + bias. x: [num_rows, in], weight: [out, in], bias: [out] or none.
// Differentiable. packed: the weight's own packed form, or null; used instead of the weight if no
// graph is recorded. On the CPU, and on a GPU with exact numerics, a row of the result depends only
// on that row of x, bit for bit.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias = std::nullopt,
                  const kernels::PackedMatrix* packed = nullptr);

// The same without a bias, in float32 (float64 for float64 inputs) whatever the inputs' type: for
// logits, which bfloat16 would round to three digits. Differentiable; gradients have the inputs'
// types.
at::Tensor LinearInFloat32(const at::Tensor& x, const at::Tensor& weight,
                           const kernels::PackedMatrix* packed = nullptr);

// Plain products without autograd, in float32 arithmetic; `out` determines the result type.
// x weight^T + bias: [rows, in] x [out, in]. packed: see Linear(); bias: [out], or undefined.
void MultiplyTransposed(const at::Tensor& x, const at::Tensor& weight, at::Tensor& out,
                        const kernels::PackedMatrix* packed = nullptr, const at::Tensor& bias = {});
// grad weight: [rows, out] x [out, in]; the gradient of x.
void MultiplyPlain(const at::Tensor& grad, const at::Tensor& weight, at::Tensor& out);
// grad^T x: [rows, out] x [rows, in]; the gradient of the weight. accumulate: adds to float32
// `out`.
void MultiplyOverRows(const at::Tensor& grad, const at::Tensor& x, at::Tensor& out,
                      bool accumulate = false);
// Returns the sum of the rows of grad [rows, out], [out]: the gradient of a bias. Computes in float32
// (float64 for float64) and rounds once, to the type of `grad`.
at::Tensor SumOfRows(const at::Tensor& grad);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LINEAR_H_
