// The matrix products of the model, and which implementation computes them on this machine.
#ifndef TANDEM_COMMON_MODEL_LINEAR_H_
#define TANDEM_COMMON_MODEL_LINEAR_H_

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/model/kernels/gemm.h"

namespace tandem::model {

// Whether products of this element type are ours on this machine's CPU. float32: always. bfloat16:
// unless the CPU multiplies it in hardware (AVX512-BF16, AMX), where ATen's oneDNN is several times
// faster; without such hardware ATen's way is five times slower than float32, and ours is as fast.
// With Numerics::kExact ours in any case, for the rows of oneDNN's results depend on their number.
bool OwnProducts(at::ScalarType type);

// x weight^T + bias. x: [num_rows, in], weight: [out, in], bias: [out] or none. Differentiable.
// packed: the weight's own packed form, or null; it is read instead where no graph is recorded.
// With OwnProducts a row of the result depends on the row of x alone, bit for bit.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias = std::nullopt,
                  const kernels::PackedMatrix* packed = nullptr);

// The bare products, without autograd, in float32 arithmetic. `out` decides the type of the result.
// x weight^T: [rows, in] x [out, in]. packed: as Linear().
void MultiplyTransposed(const at::Tensor& x, const at::Tensor& weight, at::Tensor& out,
                        const kernels::PackedMatrix* packed = nullptr);
// grad weight: [rows, out] x [out, in]; the gradient of x.
void MultiplyPlain(const at::Tensor& grad, const at::Tensor& weight, at::Tensor& out);
// grad^T x: [rows, out] x [rows, in]; the gradient of the weight. accumulate: added to float32
// `out`.
void MultiplyOverRows(const at::Tensor& grad, const at::Tensor& x, at::Tensor& out,
                      bool accumulate = false);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LINEAR_H_
