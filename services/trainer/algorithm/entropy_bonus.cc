#include "services/trainer/algorithm/entropy_bonus.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

at::Tensor EntropyBonus(const at::Tensor& entropies, const at::Tensor& weights,
                        double coefficient) {
  return (entropies * weights).sum() * -coefficient;
}

}  // namespace tandem::trainer
