// The per-token operations of a layer on a GPU, with our own kernels (kernels/cuda/row_kernels.h,
// few_rows_product.h, row_product.h): those of norm.h, rotary.h, activation.h, head.h and linear.h, forward only. Tensors
// that the kernels do not support use ATen (eager_ops.h).
#ifndef TANDEM_COMMON_MODEL_DEVICE_ROW_OPS_H_
#define TANDEM_COMMON_MODEL_DEVICE_ROW_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "common/model/activation.h"
#include "common/model/norm.h"
#include "common/model/rotary.h"

namespace tandem::model::device {

// Returns true if all tensors are on one CUDA device and share float32 or bfloat16, and the build
// has the kernels. Ignores undefined tensors. All passes use them, with a graph
// (device_row_gradients.h) and without: a backward pass may recompute the forward pass, and its
// results must have the same bits. All functions below require KernelsTake(), queue on the thread's
// current stream of the device, and throw device errors.
bool KernelsTake(std::initializer_list<at::Tensor> tensors);

// `delta` may be undefined: then the residual is x. moments: if not null, it becomes what
// device_row_gradients.h needs, float32 [1 or 2, rows]: inverses, and a LayerNorm's means.
ResidualNorm AddNorm(const at::Tensor& x, const at::Tensor& delta, const Norm& norm,
                     at::Tensor* moments = nullptr);

at::Tensor Activate(const at::Tensor& in, const ActivationFunction& function);

// The tables are float32.
Qkv RotateQkv(const at::Tensor& qkv, const HeadRotation& rotation);

// Returns whether RotaryTable() supports positions (int64) and frequencies (float32 on the CPU).
bool HasRotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies);
RotaryAngles RotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies,
                         double factor);

// Returns whether products use RowProduct(): if KernelsTake() the tensors and numerics are exact.
bool ProductsTake(std::initializer_list<at::Tensor> tensors);
// Writes x weight^T + bias to out, which has their type or float32. All contiguous; the bias may be
// undefined.
void RowProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                at::Tensor& out);

// Returns whether FewRowsProduct() takes the product of a step in inference mode: few rows of
// bfloat16, in fast numerics. Ignores an undefined bias.
bool FewRowsProductTakes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// Returns x weight^T + bias, bfloat16 or float32.
at::Tensor FewRowsProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          at::ScalarType type);

// Returns whether RowLogProbs() and RowLogProbsBackward() take the logits, in fast numerics and in
// passes with a graph too: float32 on a CUDA device.
bool LogitKernelsTake(const at::Tensor& logits);
// Log-probs, entropies and log-sum-exps of float32 logits [rows, vocab], like kernels/log_probs.h;
// all others [rows].
void RowLogProbs(const at::Tensor& logits, const at::Tensor& targets,
                 const at::Tensor& temperatures, at::Tensor& log_probs, at::Tensor& entropy,
                 at::Tensor& log_sum_exp);
// Writes the gradient of the head's products to `grad`, [rows, vocab] in float32 or bfloat16, which
// may be the logits. scale, softcap: of LmHead; the others [rows].
void RowLogProbsBackward(const at::Tensor& logits, double scale, double softcap,
                         const at::Tensor& targets, const at::Tensor& temperatures,
                         const at::Tensor& entropy, const at::Tensor& log_sum_exp,
                         const at::Tensor& grad_log_probs, const at::Tensor& grad_entropy,
                         at::Tensor& grad);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_DEVICE_ROW_OPS_H_
