// Soft adaptive policy optimisation (2511.20347): a smooth gate in the place of the clip; verl's
// sapo.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_SAPO_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_SAPO_LOSS_H_

#include <ATen/core/Tensor.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {

// With r = exp(clamp(log pi - log pi_old, -20, 20)), and tau of the sign of A (not positive: that
// of the negative):
//   loss = -A sigmoid(tau (r - 1)) 4 / tau,
// whose gradient at r = 1 is the policy gradient's. Nothing is clipped.
PolicyLoss SapoLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                    const at::Tensor& advantages, double tau_positive, double tau_negative);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_SAPO_LOSS_H_
