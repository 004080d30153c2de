// Divergence proximal policy optimisation (DPPO, 2602.04879): the trust region bounds how far a
// token's probability moves, not its ratio, which overstates the moves of rare tokens; verl's dppo_tv
// and dppo_kl.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {
namespace {

constexpr double kLargestRatio = 20.0;
constexpr double kSmallestProb = 1e-6;  // bounds the logarithms of dppo_kl

// Divergence of the two outcomes "this token" and "another", [num_rows].
using Divergence = at::Tensor (*)(const at::Tensor& prob, const at::Tensor& old_prob);

// With p = pi, q = pi_old of the token and the divergence D(q, p):
//   loss = -A min(r, 20), and 0 where p > q, A > 0 and D > high, or p < q, A < 0 and D > low.
// r = exp(clamp(log pi - log pi_old, -20, 20)). A token that returns to the region keeps its
// gradient.
PolicyLoss DppoLoss(const PolicyLossInputs& in, const PolicyLossOptions& options,
                    Divergence divergence) {
  const at::Tensor log_ratio = (in.logprobs - in.old_logprobs).clamp(-20.0, 20.0);
  const at::Tensor prob = in.logprobs.detach().clamp_max(0.0).exp();
  const at::Tensor old_prob = in.old_logprobs.clamp_max(0.0).exp();
  const at::Tensor distance = divergence(prob, old_prob);
  const at::Tensor leaves =
      (in.advantages.gt(0) & prob.gt(old_prob) & distance.gt(options.clip.high)) |
      (in.advantages.lt(0) & prob.lt(old_prob) & distance.gt(options.clip.low));
  const at::Tensor loss = -in.advantages * log_ratio.exp().clamp_max(kLargestRatio);
  PolicyLoss out;
  out.loss = at::where(leaves, at::zeros_like(loss), loss);
  out.clipped = leaves.to(in.logprobs.scalar_type());
  out.clipped_lower = at::zeros_like(out.clipped);
  out.log_ratio = log_ratio.detach();
  return out;
}

// |p - q|.
at::Tensor TotalVariation(const at::Tensor& prob, const at::Tensor& old_prob) {
  return (prob - old_prob).abs();
}

// q log(q / p) + (1 - q) log((1 - q) / (1 - p)).
at::Tensor BinaryKl(const at::Tensor& prob, const at::Tensor& old_prob) {
  const at::Tensor p = prob.clamp(kSmallestProb, 1.0 - kSmallestProb);
  const at::Tensor q = old_prob.clamp(kSmallestProb, 1.0 - kSmallestProb);
  return q * (q / p).log() + (1.0 - q) * ((1.0 - q) / (1.0 - p)).log();
}

}  // namespace

const PolicyLossKind kDppoTvLoss = {
    config::v1::POLICY_LOSS_MODE_DPPO_TV,
    [](const PolicyLossInputs& in, const PolicyLossOptions& options) {
      return DppoLoss(in, options, TotalVariation);
    }};

const PolicyLossKind kDppoKlLoss = {
    config::v1::POLICY_LOSS_MODE_DPPO_KL,
    [](const PolicyLossInputs& in, const PolicyLossOptions& options) {
      return DppoLoss(in, options, BinaryKl);
    }};

}  // namespace tandem::trainer
