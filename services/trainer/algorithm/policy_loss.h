// The policy gradient's loss of each token: the choice of actor.policy_loss.loss_mode.
//
//   const PolicyLoss loss = ComputePolicyLoss(options, logprobs, old, advantages, rows);
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_

#include <ATen/core/Tensor.h>

#include "services/trainer/algorithm/sequence_rows.h"

namespace tandem::trainer {

enum class PolicyLossMode {
  kVanilla,  // ppo_clip_loss.h
  kGspo,     // gspo_loss.h
  kCispo,    // cispo_loss.h
  kSapo,     // sapo_loss.h
};

// The ratio is clipped to [1 - low, 1 + high].
struct ClipOptions {
  double low = 0.2;
  double high = 0.2;
  // Bound of the dual clip, above 1; 0 turns it off.
  double dual = 3.0;
};

struct PolicyLossOptions {
  PolicyLossMode mode = PolicyLossMode::kVanilla;
  ClipOptions clip;
  double tau_positive = 1.0;  // of kSapo
  double tau_negative = 1.05;
};

// All [num_rows]. Only `loss` is differentiable, through logprobs.
struct PolicyLoss {
  at::Tensor loss;           // of each token
  at::Tensor clipped;        // 1 where the clipped ratio made the loss
  at::Tensor clipped_lower;  // 1 where the dual clip did
  at::Tensor log_ratio;      // log pi - log pi_old, clamped where the loss clamps it
};

PolicyLoss ComputePolicyLoss(const PolicyLossOptions& options, const at::Tensor& logprobs,
                             const at::Tensor& old_logprobs, const at::Tensor& advantages,
                             const SequenceRows& rows);

// Whether the loss is defined as a mean over sequences of means over their tokens, so that
// loss_agg_mode does not concern it (as in verl: gspo, sapo).
bool IsMeanOverSequences(PolicyLossMode mode);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_LOSS_H_
