// Implements device_row_gradients.h for builds without CUDA, whose device::KernelsTake() returns
// false, so none is called.
#include <cstdlib>

#include "common/model/device_row_gradients.h"

namespace tandem::model::device {

bool NormGradientsTake() { return false; }

bool ActivationGradientsTake(const ActivationFunction& function) { return false; }

bool RotationGradientsTake(const HeadRotation& rotation) { return false; }

NormGradients NormBackward(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& weight,
                           const NormSpec& spec, const at::Tensor& grad_out,
                           const at::Tensor& grad_sum, bool want_weight, bool want_bias) {
  std::abort();
}

at::Tensor ActivateBackward(const at::Tensor& in, const ActivationFunction& function,
                            const at::Tensor& grad_out) {
  std::abort();
}

RotationGradients RotateBackward(const at::Tensor& qkv, const HeadRotation& rotation,
                                 const Qkv& grads) {
  std::abort();
}

}  // namespace tandem::model::device
