// The operations of a layer that work on each token alone, on a GPU by kernels of our own
// (kernels/cuda/row_kernels.h, row_product.h): those of norm.h, rotary.h, swiglu.h, head.h and
// linear.h, forward only. What the kernels do not take goes the ATen way of eager_ops.h.
#ifndef TANDEM_COMMON_MODEL_DEVICE_ROW_OPS_H_
#define TANDEM_COMMON_MODEL_DEVICE_ROW_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "common/model/norm.h"
#include "common/model/rotary.h"

namespace tandem::model::device {

// True where all tensors are on one CUDA device and share float32 or bfloat16, the build has the
// kernels, and the thread is in inference mode or numerics are exact. Undefined tensors are passed
// over. Outside of inference mode a forward pass may be computed again for its backward, which must
// give the bits of the first time, with and without a graph: with exact numerics every pass goes
// through the kernels, and kernel_function.h has the gradient. Everything below may be called only
// then; it is queued on the thread's current stream of the device, and throws what the device
// refuses.
bool KernelsTake(std::initializer_list<at::Tensor> tensors);

// `delta` may be undefined: then the residual is x.
ResidualNorm AddRmsNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps);

at::Tensor SwiGlu(const at::Tensor& gate_up);

// The norms may be undefined.
Qkv RotateQkv(const at::Tensor& qkv, const Rotary& rotary, const QkvShape& shape,
              const at::Tensor& q_norm, const at::Tensor& k_norm, double eps);

// Likewise for positions, int64, and frequencies, float32 on the CPU.
bool HasRotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies);
Rotary RotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies);

// Whether products go through RowProduct(): where KernelsTake() the tensors and numerics are exact.
bool ProductsTake(std::initializer_list<at::Tensor> tensors);
// x weight^T + bias into out, of their type or float32. All contiguous; the bias may be undefined.
void RowProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                at::Tensor& out);

// Of logits [rows, vocab] in float32, as kernels/log_probs.h; all others [rows].
void RowLogProbs(const at::Tensor& logits, const at::Tensor& targets,
                 const at::Tensor& temperatures, at::Tensor& log_probs, at::Tensor& entropy,
                 at::Tensor& log_sum_exp);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_DEVICE_ROW_OPS_H_
