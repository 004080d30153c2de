// KL-Cov (2505.22617): the tokens of the highest covariance, which would lower the entropy most, are
// held to the policy at the step's start; verl's kl_cov.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "services/trainer/algorithm/policy_loss.h"
#include "services/trainer/algorithm/token_covariance.h"

namespace tandem::trainer {
namespace {

// Chooses the floor(ratio * tokens), at least one, tokens of the largest covariance.
void SelectLargest(TrainingBatch& batch, const PolicyLossOptions& options) {
  std::vector<TokenCovariance> tokens = TokenCovariances(batch);
  const auto wanted = std::max<size_t>(
      1, static_cast<size_t>(options.kl_cov_ratio * static_cast<double>(tokens.size())));
  std::stable_sort(
      tokens.begin(), tokens.end(),
      [](const TokenCovariance& a, const TokenCovariance& b) { return a.value > b.value; });
  tokens.resize(std::min(wanted, tokens.size()));
  SelectTokens(batch, tokens);
}

// With d = clamp(log pi - log pi_old, -20, 20): loss = -A exp(d), and + coefficient |d| for the
// chosen tokens. Nothing is clipped; `clipped` is 1 for the chosen ones.
PolicyLoss KlCovLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  const at::Tensor log_ratio = (in.logprobs - in.old_logprobs).clamp(-20.0, 20.0);
  PolicyLoss out;
  out.loss = -in.advantages * log_ratio.exp();
  out.clipped = at::zeros_like(in.advantages);
  if (in.selected.defined()) {
    out.clipped = in.selected.to(in.advantages.scalar_type());
    out.loss = out.loss + options.kl_cov_coefficient * out.clipped * log_ratio.abs();
  }
  out.clipped_lower = at::zeros_like(in.advantages);
  out.log_ratio = log_ratio.detach();
  return out;
}

}  // namespace

const PolicyLossKind kKlCovLoss = {
    .mode = config::v1::POLICY_LOSS_MODE_KL_COV, .compute = KlCovLoss, .select = SelectLargest};

}  // namespace tandem::trainer
