// Entropy bonus: rewards a policy for staying undecided (1602.01783).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_ENTROPY_BONUS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_ENTROPY_BONUS_H_

#include <ATen/core/Tensor.h>

namespace tandem::trainer {

// Returns -coefficient * sum of weight * entropy, to add to the loss. Entropies, in nats, are those
// of each predicted token's distribution. Both [num_rows]; differentiable in entropies.
at::Tensor EntropyBonus(const at::Tensor& entropies, const at::Tensor& weights, double coefficient);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_ENTROPY_BONUS_H_
