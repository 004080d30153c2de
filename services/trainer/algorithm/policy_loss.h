// The clipped policy gradient of PPO (1707.06347), with separate bounds below and above (DAPO,
// 2503.14476) and the dual clip (1912.09729).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_

#include <ATen/core/Tensor.h>

namespace tandem::trainer {

struct ClipOptions {
  double low = 0.2;
  double high = 0.2;
  // Bound of the dual clip, above 1; 0 turns it off.
  double dual = 3.0;
};

// All [num_rows]. Only `loss` is differentiable, through logprobs.
struct PolicyLoss {
  at::Tensor loss;           // of each token
  at::Tensor clipped;        // 1 where the clipped ratio made the loss
  at::Tensor clipped_lower;  // 1 where the dual clip did
  at::Tensor log_ratio;      // log pi - log pi_old, clamped
};

// With r = exp(clamp(log pi - log pi_old, -20, 20)):
//   loss = max(-A r, -A clip(r, 1 - low, 1 + high)), and for A < 0 at most -A dual.
// The clamp keeps one token from making the whole batch infinite, as in verl.
PolicyLoss ClippedPolicyLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                             const at::Tensor& advantages, const ClipOptions& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_
