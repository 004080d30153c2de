// The clipped policy gradient of PPO (1707.06347), with separate bounds below and above (DAPO,
// 2503.14476) and the dual clip (1912.09729); verl's vanilla.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_PPO_CLIP_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_PPO_CLIP_LOSS_H_

#include <ATen/core/Tensor.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {

// With r = exp(clamp(log pi - log pi_old, -20, 20)):
//   loss = max(-A r, -A clip(r, 1 - low, 1 + high)), and for A < 0 at most -A dual.
// The clamp keeps one token from making the whole batch infinite, as in verl.
PolicyLoss PpoClipLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                       const at::Tensor& advantages, const ClipOptions& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_PPO_CLIP_LOSS_H_
