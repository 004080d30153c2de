#include "services/trainer/algorithm/policy_objective.h"

#include <ATen/ATen.h>

#include <cmath>

#include "common/device/upload.h"
#include "services/trainer/algorithm/entropy_bonus.h"
#include "services/trainer/algorithm/nonfinite_loss.h"
#include "services/trainer/algorithm/sequence_rows.h"
#include "services/trainer/algorithm/teacher.h"

namespace tandem::trainer {
namespace {

using Sum = UpdateStatistics::Sum;

// Weights of the rows whose weighted sum is the mean over sequences of their means.
at::Tensor MeanOverSequences(const SequenceRows& rows, const at::Tensor& like,
                             double num_sequences) {
  return rows.Spread(1.0 / (rows.Sum(at::ones_like(like)) * num_sequences));
}

// The forward KL over the soft targets, [num_rows]: the sum of p_k (log p_k - log q_k). soft: the sum of
// p_k log q_k. No ratio belongs to it: it is no estimate from the token that was sampled.
at::Tensor SoftDivergence(const PackedBatch& batch, const at::Tensor& soft) {
  const at::Tensor& p = batch.soft_weights;
  return device::Upload(at::xlogy(p, p).sum(1), soft.device()) - soft;
}

}  // namespace

at::Tensor PolicyObjective::Loss(const MicroBatch& micro_batch, const model::LogProbs& out,
                                 const MicroBatchPlace& place, UpdateStatistics& statistics,
                                 DeferredValues& later) const {
  const auto add = [&](Sum sum, double factor, const at::Tensor& values) {
    later.AddSum(values,
                 [&statistics, sum, factor](double value) { statistics.Add(sum, factor * value); });
  };
  const at::Device device = out.logprobs.device();
  const SequenceRows rows(micro_batch.sequence_index, device);
  const at::Tensor weights = device::Upload(micro_batch.loss_weights, device);
  const at::Tensor old_logprobs = micro_batch.old_logprobs.defined()
                                      ? device::Upload(micro_batch.old_logprobs, device)
                                      : out.logprobs.detach();

  const PolicyLoss policy = options_.policy_loss->compute(
      {out.logprobs, old_logprobs, device::Upload(micro_batch.advantages, device), rows,
       device::Upload(micro_batch.selected, device)},
      options_.policy);
  at::Tensor policy_loss = policy.loss;
  if (micro_batch.importance_weights.defined()) {
    policy_loss = policy_loss * device::Upload(micro_batch.importance_weights, device);
  }
  const at::Tensor policy_weights = options_.policy_loss->is_mean_over_sequences
                                        ? MeanOverSequences(rows, weights, place.num_sequences)
                                        : weights;
  at::Tensor loss = (policy_loss * policy_weights).sum();
  add(Sum::kPolicyLoss, place.share, policy_loss.detach() * policy_weights);

  const auto divergence_from = [&](const at::Tensor& others) {
    at::Tensor kl = KlLoss(out.logprobs, device::Upload(others, device), options_.kl_estimator);
    if (!options_.weights_kl) return kl;
    return kl * (out.logprobs - old_logprobs).clamp(-20.0, 20.0).exp();
  };
  at::Tensor kl;
  if (options_.use_kl_loss) {
    kl = divergence_from(micro_batch.ref_logprobs);
    loss = loss + (kl * weights).sum() * options_.kl_loss_coef;
    add(Sum::kKlLoss, place.share, kl.detach() * weights);
  }
  at::Tensor teacher;
  if (options_.teacher_loss_coef != 0) {
    teacher = micro_batch.packed.soft_ids.defined() ? SoftDivergence(micro_batch.packed, out.soft)
                                                    : divergence_from(micro_batch.teacher_logprobs);
    loss = loss + (teacher * weights).sum() * options_.teacher_loss_coef;
    add(Sum::kTeacherLoss, place.share, teacher.detach() * weights);
    if (micro_batch.packed.soft_ids.defined()) {
      statistics.Add(
          Sum::kTeacherMass,
          place.share * SumTeacher(micro_batch.packed.soft_weights, micro_batch.loss_weights).mass);
    }
  }
  if (options_.entropy_coeff != 0) {
    loss = loss + EntropyBonus(out.entropy, weights, options_.entropy_coeff);
  }

  // The tensors live until the value is read, at the end of the mini-batch.
  const NamedTensors inputs = {{"log-probs", out.logprobs.detach()},
                               {"entropies", out.entropy.detach()},
                               {"old log-probs", old_logprobs},
                               {"advantages", micro_batch.advantages},
                               {"KL loss", kl.defined() ? kl.detach() : kl},
                               {"teacher loss", teacher.defined() ? teacher.detach() : teacher},
                               {"policy loss", policy_loss.detach()}};
  later.AddSum(loss, [&micro_batch, &statistics, inputs, place](double value) {
    if (!std::isfinite(value)) {
      LogNonFiniteLoss(micro_batch, place.update, place.micro_batch, inputs);
    }
    statistics.Add(Sum::kLoss, place.share * value);
  });
  const double token_share = place.share / place.num_tokens;
  add(Sum::kClipFraction, token_share, policy.clipped);
  add(Sum::kClipFractionLower, token_share, policy.clipped_lower);
  add(Sum::kPolicyKl, -token_share, policy.log_ratio);
  add(Sum::kEntropy, token_share, out.entropy);
  if (place.compare_with_rollout) {
    later.Add(out.logprobs, [&micro_batch, &statistics](const at::Tensor& logprobs) {
      statistics.AddProbDifferences(logprobs, micro_batch.rollout_logprobs);
    });
  }
  return loss;
}

}  // namespace tandem::trainer
