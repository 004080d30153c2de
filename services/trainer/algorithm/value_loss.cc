#include "services/trainer/algorithm/value_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

ValueLoss ClippedValueLoss(const at::Tensor& values, const at::Tensor& old_values,
                           const at::Tensor& returns, double cliprange) {
  const at::Tensor near =
      at::minimum(at::maximum(values, old_values - cliprange), old_values + cliprange);
  const at::Tensor plain = (values - returns).square();
  const at::Tensor clipped = (near - returns).square();
  return {0.5 * at::maximum(plain, clipped), clipped.gt(plain).to(values.scalar_type())};
}

}  // namespace tandem::trainer
