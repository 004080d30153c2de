// PolicyLossKind: a policy-gradient loss per token, named by actor.policy_loss.loss_mode. Each is
// one file (ppo_clip_loss.cc, gspo_loss.cc, ...), a declaration below, a line in policy_loss.cc and a
// value of the enum PolicyLossMode:
//
//   const PolicyLossKind* kind = FindPolicyLoss(config.actor().policy_loss().loss_mode());
//   const PolicyLoss loss = kind->compute({logprobs, old_logprobs, advantages, rows}, options);
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "services/trainer/algorithm/importance_weights.h"
#include "services/trainer/algorithm/sequence_rows.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

// Clips the ratio to [1 - low, 1 + high].
struct ClipOptions {
  double low = 0.2;
  double high = 0.2;
  // Bound of the dual clip, above 1; 0 turns it off.
  double dual = 3.0;
};

struct PolicyLossOptions {
  ClipOptions clip;
  double tau_positive = 1.0;  // for sapo
  double tau_negative = 1.05;
  double dro_beta = 0.05;           // for dro
  ImportanceWeightOptions weights;  // for the correction's loss_type reinforce
  // For clip_cov: the share of the tokens that are chosen, from those whose covariance is in range.
  double clip_cov_ratio = 0.0002;
  double clip_cov_low = 1.0;
  double clip_cov_high = 5.0;
  // For kl_cov: the share of the tokens with the largest covariance, and the weight of their
  // penalty.
  double kl_cov_ratio = 0.0002;
  double kl_cov_coefficient = 0.1;
};

// Tensors are [num_rows], one row for each trained-on token of a micro-batch.
struct PolicyLossInputs {
  at::Tensor logprobs;       // log pi, differentiable
  at::Tensor old_logprobs;   // log pi_old
  at::Tensor advantages;     // A
  const SequenceRows& rows;  // maps rows to sequences
  // 1 for the tokens that the kind's select() chose; undefined if it has none.
  at::Tensor selected = {};
};

// clamp(log pi - log pi_old, -20, 20), [num_rows]: one token cannot make a batch infinite, as in verl.
inline at::Tensor ClampedLogRatio(const PolicyLossInputs& in) {
  return (in.logprobs - in.old_logprobs).clamp(-20.0, 20.0);
}

// All [num_rows]. Only `loss` is differentiable, through logprobs.
struct PolicyLoss {
  at::Tensor loss;           // of each token
  at::Tensor clipped;        // 1 if the loss used the clipped ratio
  at::Tensor clipped_lower;  // 1 if it used the dual clip
  at::Tensor log_ratio;      // log pi - log pi_old, clamped if the loss clamps it
};

struct PolicyLossKind {
  config::v1::PolicyLossMode mode;
  PolicyLoss (*compute)(const PolicyLossInputs& in, const PolicyLossOptions& options);
  // The loss is a mean over sequences of means over their tokens, whatever loss_agg_mode says (as
  // in verl: gspo, sapo).
  bool is_mean_over_sequences = false;
  // Sets `selected` of all sequences: marks the tokens that the loss treats differently. Called
  // once a step, before its first update, with old_logprobs and advantages; every rank chooses the same tokens.
  void (*select)(TrainingBatch& batch, const PolicyLossOptions& options) = nullptr;
};

extern const PolicyLossKind kVanillaLoss;
extern const PolicyLossKind kGspoLoss;
extern const PolicyLossKind kCispoLoss;
extern const PolicyLossKind kSapoLoss;
extern const PolicyLossKind kGmpoLoss;
extern const PolicyLossKind kGpgLoss;
extern const PolicyLossKind kDppoTvLoss;
extern const PolicyLossKind kDppoKlLoss;
extern const PolicyLossKind kDroLoss;
extern const PolicyLossKind kClipCovLoss;
extern const PolicyLossKind kKlCovLoss;
// Has no mode: algorithm.rollout_correction.loss_type selects it.
extern const PolicyLossKind kReinforceLoss;

// Returns null for POLICY_LOSS_MODE_UNSPECIFIED, and for a value that policy_loss.cc does not list.
const PolicyLossKind* FindPolicyLoss(config::v1::PolicyLossMode mode);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_
