// Normalisation over the last dim: RMS norms and LayerNorms (layers/norm_spec.h), and the sums of
// the residual stream that they read.
//
//   at::Tensor normed = Normalize(x, {spec, weight, bias});
#ifndef TANDEM_COMMON_MODEL_NORM_H_
#define TANDEM_COMMON_MODEL_NORM_H_

#include <ATen/core/Tensor.h>

#include "common/model/layers/norm_spec.h"

namespace tandem::model {

// A norm with its parameters, in the type of what it normalises.
struct Norm {
  NormSpec spec;
  at::Tensor weight;  // [size]; undefined if the norm has none
  at::Tensor bias;    // likewise
};

// x: [num_tokens, size]. Computes in float32 and rounds once. Differentiable.
at::Tensor Normalize(const at::Tensor& x, const Norm& norm);

// The residual stream as a sum of two tensors; the norm that reads it computes the sum.
struct Residual {
  at::Tensor x;      // [num_tokens, size]
  at::Tensor delta;  // output of a sub-layer, shaped like x; undefined: nothing
};
// Returns x + delta. Differentiable; has the same bits as the sum that AddNorm() computes.
at::Tensor Sum(const Residual& residual);

// The residual stream after a sub-layer, and its norm, the input of the next sub-layer.
struct ResidualNorm {
  at::Tensor residual;  // x + delta, or x
  at::Tensor normed;    // Normalize(residual, norm)
};
// `delta` may be undefined: nothing is added.
ResidualNorm AddNorm(const at::Tensor& x, const at::Tensor& delta, const Norm& norm);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_NORM_H_
