// Geometric-mean policy optimisation (2507.20673): the geometric mean of a sequence's ratios, each
// clipped on its own; verl's geo_mean.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

// With d = clamp(log pi - log pi_old, -20, 20), bounded only where A would gain from more:
//   c = min(d, high) where A > 0, max(d, -low) where A < 0,
//   loss = -(mean of A over the sequence) exp(mean of c over the sequence)
// for each token of the sequence. The bounds are of log-ratios; the paper's are 0.4. There is no
// dual clip.
PolicyLoss GmpoLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  const at::Tensor log_ratio = (in.logprobs - in.old_logprobs).clamp(-20.0, 20.0);
  const at::Tensor sign = in.advantages.sign();
  const at::Tensor bound = at::where(sign.gt(0), at::full_like(sign, options.clip.high),
                                     at::full_like(sign, options.clip.low));
  const at::Tensor gain = sign * log_ratio;
  const at::Tensor bounded = sign * at::minimum(gain, bound);
  PolicyLoss out;
  out.loss = in.rows.Spread(-in.rows.Mean(in.advantages) * in.rows.Mean(bounded).exp());
  out.clipped = gain.gt(bound).to(in.logprobs.scalar_type());
  out.clipped_lower = at::zeros_like(out.clipped);
  out.log_ratio = log_ratio.detach();
  return out;
}

}  // namespace

const PolicyLossKind kGmpoLoss = {config::v1::POLICY_LOSS_MODE_GMPO, GmpoLoss,
                                  /*is_mean_over_sequences=*/true};

}  // namespace tandem::trainer
