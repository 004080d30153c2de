// Group policy gradient (2504.02546): REINFORCE with a group's advantages, without ratio, clip or
// reference; verl's gpg.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

// loss = -A log pi.
PolicyLoss GpgLoss(const PolicyLossInputs& in, const PolicyLossOptions&) {
  PolicyLoss out;
  out.loss = -in.advantages * in.logprobs;
  out.clipped = at::zeros_like(in.advantages);
  out.clipped_lower = out.clipped;
  out.log_ratio = (in.logprobs - in.old_logprobs).detach();
  return out;
}

}  // namespace

const PolicyLossKind kGpgLoss = {config::v1::POLICY_LOSS_MODE_GPG, GpgLoss};

}  // namespace tandem::trainer
