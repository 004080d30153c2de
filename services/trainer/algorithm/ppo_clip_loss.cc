// The clipped policy gradient of PPO (1707.06347), with separate bounds below and above (DAPO,
// 2503.14476) and the dual clip (1912.09729); verl's vanilla.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

// With r = exp(clamp(log pi - log pi_old, -20, 20)):
//   loss = max(-A r, -A clip(r, 1 - low, 1 + high)), and for A < 0 at most -A dual.
PolicyLoss PpoClipLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  const at::Tensor log_ratio = ClampedLogRatio(in);
  const at::Tensor ratio = log_ratio.exp();
  const at::Tensor unclipped = -in.advantages * ratio;
  const at::Tensor clipped =
      -in.advantages * ratio.clamp(1.0 - options.clip.low, 1.0 + options.clip.high);
  PolicyLoss out;
  out.loss = at::maximum(unclipped, clipped);
  out.clipped = clipped.gt(unclipped).to(in.logprobs.scalar_type());
  out.log_ratio = log_ratio.detach();
  if (options.clip.dual > 0) {
    const at::Tensor bound = -in.advantages * options.clip.dual;
    const at::Tensor negative = in.advantages.lt(0);
    out.clipped_lower = (out.loss.gt(bound) & negative).to(in.logprobs.scalar_type());
    out.loss = at::where(negative, at::minimum(out.loss, bound), out.loss);
  } else {
    out.clipped_lower = at::zeros_like(out.clipped);
  }
  return out;
}

}  // namespace

const PolicyLossKind kVanillaLoss = {config::v1::POLICY_LOSS_MODE_VANILLA, PpoClipLoss};

}  // namespace tandem::trainer
