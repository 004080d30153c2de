// The backward passes of the per-token operations of a layer on a GPU, with our own kernels
// (kernels/cuda/row_gradients.h), in fast numerics. With exact numerics ATen differentiates them
// (kernel_function.h).
#ifndef TANDEM_COMMON_MODEL_DEVICE_ROW_GRADIENTS_H_
#define TANDEM_COMMON_MODEL_DEVICE_ROW_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include "common/model/activation.h"
#include "common/model/norm.h"
#include "common/model/rotary.h"

namespace tandem::model::device {

// Whether NormBackward() differentiates device::AddNorm(): in fast numerics. Like the two below, for
// tensors that device::KernelsTake(). All functions queue on the thread's current stream of the
// device, and throw device errors.
bool NormGradientsTake();
// Likewise of ActivateBackward(), for all activations without parameters.
bool ActivationGradientsTake(const ActivationFunction& function);
// Likewise of RotateBackward(), for plain rotations.
bool RotationGradientsTake(const HeadRotation& rotation);

struct NormGradients {
  at::Tensor x;       // [rows, size], also of a delta
  at::Tensor weight;  // [size], or undefined, like the bias's
  at::Tensor bias;
};
// x: what was normalised, contiguous. moments: of AddNorm(). grad_sum: added to the gradient of x, or
// undefined.
NormGradients NormBackward(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& weight,
                           const NormSpec& spec, const at::Tensor& grad_out,
                           const at::Tensor& grad_sum, bool want_weight, bool want_bias);

// Returns the gradient of `in`, the input of Activate(), contiguous.
at::Tensor ActivateBackward(const at::Tensor& in, const ActivationFunction& function,
                            const at::Tensor& grad_out);

struct RotationGradients {
  at::Tensor qkv;     // [num_tokens, the heads of q, k and v]
  at::Tensor q_norm;  // [head_dim], or undefined: no norm
  at::Tensor k_norm;
};
// qkv: contiguous; read only if there is a norm. grads: of q, k and v; undefined: zeros, but not all.
RotationGradients RotateBackward(const at::Tensor& qkv, const HeadRotation& rotation,
                                 const Qkv& grads);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_DEVICE_ROW_GRADIENTS_H_
