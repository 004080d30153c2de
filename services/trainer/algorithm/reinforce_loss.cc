// REINFORCE with importance weights between the policy that sampled and the current one, which the
// correction's loss_type selects in the place of actor.policy_loss: verl's bypass mode with
// loss_type reinforce. Token weights: TIS (https://fengyao.notion.site/off-policy-rl); a sequence's:
// https://richardli.xyz/rl-collapse.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

at::Tensor Bounded(const at::Tensor& weight, const config::WeightBounds& bounds) {
  if (!bounds.masks) return weight.clamp_max(bounds.high);
  const at::Tensor inside = weight.ge(bounds.low) & weight.le(bounds.high);
  return at::where(inside, weight, at::zeros_like(weight));
}

// loss = -sg(w) A log pi, with w = exp(clamp(log pi - log pi_old, -20, 20)) of the token, or of the
// sum over the sequence, bounded; without a level, w = 1. `clipped` is 1 where w was bounded.
PolicyLoss ReinforceLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  const at::Tensor log_ratio = (in.logprobs - in.old_logprobs).detach();
  PolicyLoss out;
  out.log_ratio = log_ratio;
  out.clipped = at::zeros_like(in.advantages);
  out.clipped_lower = out.clipped;
  if (options.weights.level == RolloutIs::kNone) {
    out.loss = -in.advantages * in.logprobs;
    return out;
  }
  const at::Tensor exponent = options.weights.level == RolloutIs::kSequence
                                  ? in.rows.Spread(in.rows.Sum(log_ratio))
                                  : log_ratio;
  const at::Tensor raw = exponent.clamp(-20.0, 20.0).exp();
  const at::Tensor weight = Bounded(raw, options.weights.bounds);
  out.loss = -weight * in.advantages * in.logprobs;
  out.clipped = weight.ne(raw).to(in.logprobs.scalar_type());
  return out;
}

}  // namespace

const PolicyLossKind kReinforceLoss = {config::v1::POLICY_LOSS_MODE_UNSPECIFIED, ReinforceLoss};

}  // namespace tandem::trainer
