// Clipped importance sampling policy optimisation (2506.13585, MiniMax-M1): the clip bounds a
// weight, and every token keeps its gradient; verl's cispo.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

// With r = exp(clamp(log pi - log pi_old, -20, 20)):
//   loss = -sg(clip(r, 1 - low, 1 + high)) A log pi.
// `clipped` is 1 where the weight was clipped. There is no dual clip.
PolicyLoss CispoLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  const at::Tensor log_ratio = ClampedLogRatio(in).detach();
  const at::Tensor ratio = log_ratio.exp();
  const at::Tensor weight = ratio.clamp(1.0 - options.clip.low, 1.0 + options.clip.high);
  PolicyLoss out;
  out.loss = -weight * in.advantages * in.logprobs;
  out.clipped = weight.ne(ratio).to(in.logprobs.scalar_type());
  out.clipped_lower = at::zeros_like(out.clipped);
  out.log_ratio = log_ratio;
  return out;
}

}  // namespace

const PolicyLossKind kCispoLoss = {config::v1::POLICY_LOSS_MODE_CISPO, CispoLoss};

}  // namespace tandem::trainer
