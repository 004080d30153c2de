#include "services/trainer/algorithm/policy_objective.h"

#include <ATen/ATen.h>

#include <cmath>

#include "services/trainer/algorithm/entropy_bonus.h"
#include "services/trainer/algorithm/nonfinite_loss.h"
#include "services/trainer/algorithm/sequence_rows.h"
#include "services/trainer/algorithm/sum_of.h"

namespace tandem::trainer {
namespace {

using Sum = UpdateStatistics::Sum;

double WeightedSum(const at::Tensor& values, const at::Tensor& weights) {
  return (values.detach() * weights).sum(at::kDouble).item<double>();
}

// Weights of the rows whose weighted sum is the mean over sequences of their means.
at::Tensor MeanOverSequences(const SequenceRows& rows, const at::Tensor& like,
                             double num_sequences) {
  return rows.Spread(1.0 / (rows.Sum(at::ones_like(like)) * num_sequences));
}

}  // namespace

at::Tensor PolicyObjective::Loss(const MicroBatch& micro_batch, const model::LogProbs& out,
                                 const MicroBatchPlace& place, UpdateStatistics& statistics) const {
  const at::Device device = out.logprobs.device();
  const SequenceRows rows(micro_batch.sequence_index, device);
  const at::Tensor weights = micro_batch.loss_weights.to(device);
  const at::Tensor old_logprobs = micro_batch.old_logprobs.defined()
                                      ? micro_batch.old_logprobs.to(device)
                                      : out.logprobs.detach();

  const PolicyLoss policy = options_.policy_loss->compute(
      {out.logprobs, old_logprobs, micro_batch.advantages.to(device), rows,
       micro_batch.selected.defined() ? micro_batch.selected.to(device) : at::Tensor()},
      options_.policy);
  at::Tensor policy_loss = policy.loss;
  if (micro_batch.importance_weights.defined()) {
    policy_loss = policy_loss * micro_batch.importance_weights.to(device);
  }
  const at::Tensor policy_weights = options_.policy_loss->is_mean_over_sequences
                                        ? MeanOverSequences(rows, weights, place.num_sequences)
                                        : weights;
  at::Tensor loss = (policy_loss * policy_weights).sum();
  statistics.Add(Sum::kPolicyLoss, place.share * WeightedSum(policy_loss, policy_weights));

  at::Tensor kl;
  if (options_.use_kl_loss) {
    kl = KlLoss(out.logprobs, micro_batch.ref_logprobs.to(device), options_.kl_estimator);
    if (options_.weights_kl) {
      kl = kl * (out.logprobs - old_logprobs).clamp(-20.0, 20.0).exp();
    }
    loss = loss + (kl * weights).sum() * options_.kl_loss_coef;
    statistics.Add(Sum::kKlLoss, place.share * WeightedSum(kl, weights));
  }
  if (options_.entropy_coeff != 0) {
    loss = loss + EntropyBonus(out.entropy, weights, options_.entropy_coeff);
  }

  const auto value = loss.item<double>();
  if (!std::isfinite(value)) {
    LogNonFiniteLoss(micro_batch, place.update, place.micro_batch,
                     {{"log-probs", out.logprobs},
                      {"entropies", out.entropy},
                      {"old log-probs", old_logprobs},
                      {"advantages", micro_batch.advantages},
                      {"KL loss", kl},
                      {"policy loss", policy_loss}});
  }
  const double token_share = place.share / place.num_tokens;
  statistics.Add(Sum::kLoss, place.share * value);
  statistics.Add(Sum::kClipFraction, token_share * SumOf(policy.clipped));
  statistics.Add(Sum::kClipFractionLower, token_share * SumOf(policy.clipped_lower));
  statistics.Add(Sum::kPolicyKl, -token_share * SumOf(policy.log_ratio));
  statistics.Add(Sum::kEntropy, token_share * SumOf(out.entropy));
  if (place.compare_with_rollout) {
    statistics.AddProbDifferences(out.logprobs, micro_batch.rollout_logprobs);
  }
  return loss;
}

}  // namespace tandem::trainer
