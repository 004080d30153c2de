#include "services/trainer/algorithm/supervised_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

at::Tensor SupervisedLoss(const at::Tensor& logprobs, const at::Tensor& weights) {
  return -(logprobs * weights).sum();
}

}  // namespace tandem::trainer
