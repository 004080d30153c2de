#include "common/model/linear.h"

#include <ATen/ops/linear.h>

namespace tandem::model {

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  return at::linear(x, weight, bias);
}

}  // namespace tandem::model
