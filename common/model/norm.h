// Root-mean-square normalisation over the last dim.
#ifndef TANDEM_COMMON_MODEL_NORM_H_
#define TANDEM_COMMON_MODEL_NORM_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

// x / sqrt(mean(x^2) + eps) * weight; x: [num_tokens, size], weight: [size]. Differentiable.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// The residual stream: the sum of two tensors that is made where it is read, with the norm that
// reads it.
struct Residual {
  at::Tensor x;      // [num_tokens, size]
  at::Tensor delta;  // what a sub-layer adds, as x; undefined: nothing
};
// Differentiable; the same bits as a norm's.
at::Tensor Sum(const Residual& residual);

// The residual stream after a sub-layer, and its norm, which the next sub-layer reads.
struct ResidualNorm {
  at::Tensor residual;  // x + delta, or x
  at::Tensor normed;    // RmsNorm(residual, weight)
};
// `delta` may be undefined: nothing is added.
ResidualNorm AddRmsNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_NORM_H_
