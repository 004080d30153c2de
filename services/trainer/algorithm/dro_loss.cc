// Direct reward optimisation (2405.19107), with given advantages in the place of reward less value:
// Tinker's dro.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

// loss = -A log pi + beta / 2 (log pi - log pi_old)^2: a quadratic penalty in the place of the clip.
PolicyLoss DroLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  const at::Tensor log_ratio = in.logprobs - in.old_logprobs;
  PolicyLoss out;
  out.loss = -in.advantages * in.logprobs + 0.5 * options.dro_beta * log_ratio.square();
  out.clipped = at::zeros_like(in.advantages);
  out.clipped_lower = out.clipped;
  out.log_ratio = log_ratio.detach();
  return out;
}

}  // namespace

const PolicyLossKind kDroLoss = {config::v1::POLICY_LOSS_MODE_DRO, DroLoss};

}  // namespace tandem::trainer
