// Implements device_row_ops.h for builds without CUDA: KernelsTake() returns false, so the rest is
// never called.
#include <cstdlib>

#include "common/model/device_row_ops.h"

namespace tandem::model::device {

bool KernelsTake(std::initializer_list<at::Tensor> tensors) { return false; }

ResidualNorm AddNorm(const at::Tensor& x, const at::Tensor& delta, const Norm& norm,
                     at::Tensor* moments) {
  std::abort();
}

at::Tensor Activate(const at::Tensor& in, const ActivationFunction& function) { std::abort(); }

Qkv RotateQkv(const at::Tensor& qkv, const HeadRotation& rotation) { std::abort(); }

bool HasRotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies) {
  return false;
}

RotaryAngles RotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies,
                         double factor) {
  std::abort();
}

bool ProductsTake(std::initializer_list<at::Tensor> tensors) { return false; }

void RowProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                at::Tensor& out) {
  std::abort();
}

bool FewRowsProductTakes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return false;
}

at::Tensor FewRowsProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          at::ScalarType type) {
  std::abort();
}

bool LogitKernelsTake(const at::Tensor& logits) { return false; }

void RowLogProbs(const at::Tensor& logits, const at::Tensor& targets,
                 const at::Tensor& temperatures, at::Tensor& log_probs, at::Tensor& entropy,
                 at::Tensor& log_sum_exp) {
  std::abort();
}

void RowLogProbsBackward(const at::Tensor& logits, double scale, double softcap,
                         const at::Tensor& targets, const at::Tensor& temperatures,
                         const at::Tensor& entropy, const at::Tensor& log_sum_exp,
                         const at::Tensor& grad_log_probs, const at::Tensor& grad_entropy,
                         at::Tensor& grad) {
  std::abort();
}

}  // namespace tandem::model::device
