// Root-mean-square normalisation over the last dim.
#ifndef TANDEM_COMMON_MODEL_NORM_H_
#define TANDEM_COMMON_MODEL_NORM_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

// x / sqrt(mean(x^2) + eps) * weight; x: [num_tokens, size], weight: [size]. Differentiable.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// The residual stream after a sub-layer, and its norm, which the next sub-layer reads.
struct ResidualNorm {
  at::Tensor residual;  // x + delta
  at::Tensor normed;    // RmsNorm(x + delta, weight)
};
ResidualNorm AddRmsNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_NORM_H_
