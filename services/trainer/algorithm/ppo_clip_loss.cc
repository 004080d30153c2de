#include "services/trainer/algorithm/ppo_clip_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

PolicyLoss PpoClipLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                       const at::Tensor& advantages, const ClipOptions& options) {
  const at::Tensor log_ratio = (logprobs - old_logprobs).clamp(-20.0, 20.0);
  const at::Tensor ratio = log_ratio.exp();
  const at::Tensor unclipped = -advantages * ratio;
  const at::Tensor clipped = -advantages * ratio.clamp(1.0 - options.low, 1.0 + options.high);
  PolicyLoss out;
  out.loss = at::maximum(unclipped, clipped);
  out.clipped = clipped.gt(unclipped).to(logprobs.scalar_type());
  out.log_ratio = log_ratio.detach();
  if (options.dual > 0) {
    const at::Tensor bound = -advantages * options.dual;
    const at::Tensor negative = advantages.lt(0);
    out.clipped_lower = (out.loss.gt(bound) & negative).to(logprobs.scalar_type());
    out.loss = at::where(negative, at::minimum(out.loss, bound), out.loss);
  } else {
    out.clipped_lower = at::zeros_like(out.clipped);
  }
  return out;
}

}  // namespace tandem::trainer
