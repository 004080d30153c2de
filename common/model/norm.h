// Root-mean-square normalisation over the last dim.
#ifndef TANDEM_COMMON_MODEL_NORM_H_
#define TANDEM_COMMON_MODEL_NORM_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

// Returns x / sqrt(mean(x^2) + eps) * weight; x: [num_tokens, size], weight: [size].
// Differentiable.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// The residual stream as a sum of two tensors; the norm that reads it computes the sum.
struct Residual {
  at::Tensor x;      // [num_tokens, size]
  at::Tensor delta;  // output of a sub-layer, shaped like x; undefined: nothing
};
// Returns x + delta. Differentiable; has the same bits as the sum that AddRmsNorm() computes.
at::Tensor Sum(const Residual& residual);

// The residual stream after a sub-layer, and its norm, the input of the next sub-layer.
struct ResidualNorm {
  at::Tensor residual;  // x + delta, or x
  at::Tensor normed;    // RmsNorm(residual, weight)
};
// `delta` may be undefined: nothing is added.
ResidualNorm AddRmsNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_NORM_H_
