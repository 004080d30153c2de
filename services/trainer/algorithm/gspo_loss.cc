// Group sequence policy optimisation (2507.18071): one ratio for a whole sequence; verl's gspo.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

// With s = exp(mean over the sequence of log pi - log pi_old), each token's ratio is s in value and
// has the gradient of s times its own log-prob's: exp(log pi - sg(log pi) + sg(log s)), its
// exponent at most 10. Then
//   loss = max(-A s, -A clip(s, 1 - low, 1 + high)).
// There is no dual clip.
PolicyLoss GspoLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  const at::Tensor log_ratio = (in.logprobs - in.old_logprobs).detach();
  const at::Tensor of_sequence = in.rows.Spread(in.rows.Mean(log_ratio));
  const at::Tensor ratio = (in.logprobs - in.logprobs.detach() + of_sequence).clamp_max(10.0).exp();
  const at::Tensor unclipped = -in.advantages * ratio;
  const at::Tensor clipped =
      -in.advantages * ratio.clamp(1.0 - options.clip.low, 1.0 + options.clip.high);
  PolicyLoss out;
  out.loss = at::maximum(unclipped, clipped);
  out.clipped = clipped.gt(unclipped).to(in.logprobs.scalar_type());
  out.clipped_lower = at::zeros_like(out.clipped);
  out.log_ratio = log_ratio;
  return out;
}

}  // namespace

const PolicyLossKind kGspoLoss = {config::v1::POLICY_LOSS_MODE_GSPO, GspoLoss,
                                  /*is_mean_over_sequences=*/true};

}  // namespace tandem::trainer
