// Clipped importance sampling policy optimisation (2506.13585, MiniMax-M1): the clip bounds a
// weight, and every token keeps its gradient; verl's cispo.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_CISPO_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_CISPO_LOSS_H_

#include <ATen/core/Tensor.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {

// With r = exp(clamp(log pi - log pi_old, -20, 20)):
//   loss = -sg(clip(r, 1 - low, 1 + high)) A log pi.
// `clipped` is 1 where the weight was clipped. There is no dual clip.
PolicyLoss CispoLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                     const at::Tensor& advantages, const ClipOptions& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_CISPO_LOSS_H_
