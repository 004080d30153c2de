// The matrix products of the model, and which implementation computes them on this machine.
#ifndef TANDEM_COMMON_MODEL_LINEAR_H_
#define TANDEM_COMMON_MODEL_LINEAR_H_

#include <ATen/core/Tensor.h>

#include <optional>

namespace tandem::model {

// x weight^T + bias. x: [num_rows, in], weight: [out, in], bias: [out] or none. Differentiable.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias = std::nullopt);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LINEAR_H_
