// Soft adaptive policy optimisation (2511.20347): a smooth gate in the place of the clip; verl's
// sapo.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

// With r = exp(clamp(log pi - log pi_old, -20, 20)), and tau of the sign of A (not positive: that
// of the negative):
//   loss = -A sigmoid(tau (r - 1)) 4 / tau,
// whose gradient at r = 1 is the policy gradient's. Nothing is clipped.
PolicyLoss SapoLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  const at::Tensor log_ratio = ClampedLogRatio(in);
  const at::Tensor ratio = log_ratio.exp();
  const at::Tensor tau =
      at::where(in.advantages.gt(0), at::full_like(ratio.detach(), options.tau_positive),
                at::full_like(ratio.detach(), options.tau_negative));
  PolicyLoss out;
  out.loss = -in.advantages * at::sigmoid(tau * (ratio - 1.0)) * (4.0 / tau);
  out.clipped = at::zeros_like(in.advantages);
  out.clipped_lower = out.clipped;
  out.log_ratio = log_ratio.detach();
  return out;
}

}  // namespace

const PolicyLossKind kSapoLoss = {config::v1::POLICY_LOSS_MODE_SAPO, SapoLoss,
                                  /*is_mean_over_sequences=*/true};

}  // namespace tandem::trainer
