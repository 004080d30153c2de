#include "common/model/norm.h"

#include <ATen/ops/add.h>

#include "common/model/eager_ops.h"

namespace tandem::model {

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return eager::RmsNorm(x, weight, eps);
}

ResidualNorm AddRmsNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps) {
  at::Tensor residual = at::add(x, delta);
  at::Tensor normed = eager::RmsNorm(residual, weight, eps);
  return {std::move(residual), std::move(normed)};
}

}  // namespace tandem::model
