#include "services/trainer/algorithm/kl_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {
namespace {

// The value of one tensor and the gradient of the other.
at::Tensor StraightThrough(const at::Tensor& value, const at::Tensor& gradient) {
  return value.detach() + (gradient - gradient.detach());
}

}  // namespace

at::Tensor KlLoss(const at::Tensor& logprobs, const at::Tensor& ref_logprobs,
                  KlEstimator estimator) {
  const at::Tensor difference = logprobs - ref_logprobs;
  switch (estimator) {
    case KlEstimator::kK1:
      return difference;
    case KlEstimator::kAbs:
      return difference.abs();
    case KlEstimator::kK2:
      return 0.5 * difference.square();
    case KlEstimator::kK3: {
      const at::Tensor d = difference.clamp(-20.0, 20.0);
      return ((-d).exp() + d - 1.0).clamp(-10.0, 10.0);
    }
    case KlEstimator::kK1Plus:
      return StraightThrough(difference, KlLoss(logprobs, ref_logprobs, KlEstimator::kK2));
    case KlEstimator::kK3Plus:
      return StraightThrough(KlLoss(logprobs, ref_logprobs, KlEstimator::kK3),
                             KlLoss(logprobs, ref_logprobs, KlEstimator::kK2));
  }
  return difference;
}

}  // namespace tandem::trainer
