#include "services/trainer/algorithm/sapo_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

PolicyLoss SapoLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                    const at::Tensor& advantages, double tau_positive, double tau_negative) {
  const at::Tensor log_ratio = (logprobs - old_logprobs).clamp(-20.0, 20.0);
  const at::Tensor ratio = log_ratio.exp();
  const at::Tensor tau = at::where(advantages.gt(0), at::full_like(ratio.detach(), tau_positive),
                                   at::full_like(ratio.detach(), tau_negative));
  PolicyLoss out;
  out.loss = -advantages * at::sigmoid(tau * (ratio - 1.0)) * (4.0 / tau);
  out.clipped = at::zeros_like(advantages);
  out.clipped_lower = out.clipped;
  out.log_ratio = log_ratio.detach();
  return out;
}

}  // namespace tandem::trainer
