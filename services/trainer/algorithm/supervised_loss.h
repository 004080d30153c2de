// Cross-entropy of given tokens.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_SUPERVISED_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_SUPERVISED_LOSS_H_

#include <ATen/core/Tensor.h>

namespace tandem::trainer {

// Returns -sum of weight * log-prob. With weights of 1 / tokens of the whole batch
// (loss_aggregation.h) this is the mean over tokens. Both [num_rows]; differentiable in logprobs.
at::Tensor SupervisedLoss(const at::Tensor& logprobs, const at::Tensor& weights);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_SUPERVISED_LOSS_H_
