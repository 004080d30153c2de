#include "services/trainer/algorithm/cispo_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

PolicyLoss CispoLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                     const at::Tensor& advantages, const ClipOptions& options) {
  const at::Tensor log_ratio = (logprobs - old_logprobs).detach().clamp(-20.0, 20.0);
  const at::Tensor ratio = log_ratio.exp();
  const at::Tensor weight = ratio.clamp(1.0 - options.low, 1.0 + options.high);
  PolicyLoss out;
  out.loss = -weight * advantages * logprobs;
  out.clipped = weight.ne(ratio).to(logprobs.scalar_type());
  out.clipped_lower = at::zeros_like(out.clipped);
  out.log_ratio = log_ratio;
  return out;
}

}  // namespace tandem::trainer
