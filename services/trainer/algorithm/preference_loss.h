// Direct preference optimisation (2305.18290): the policy learns which of two completions is
// preferred, from how much more likely each has become than under the reference.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_LOSS_H_

#include <ATen/core/Tensor.h>

namespace tandem::trainer {

struct PreferenceLossOptions {
  double beta = 0.1;             // how closely the policy is held to the reference
  double label_smoothing = 0.0;  // probability that a pair is labelled wrongly, in [0, 0.5)
};

// All [num_pairs]. Only `loss` is differentiable, through the policy's log-probs.
struct PreferenceLoss {
  at::Tensor loss;
  at::Tensor chosen_rewards;    // beta (log pi - log pi_ref) of the chosen completions
  at::Tensor rejected_rewards;  // the same of the rejected ones
};

// Log-probs of whole completions, [num_pairs] each. With
//   d = (chosen - rejected) - (ref_chosen - ref_rejected):
//   loss = -(1 - e) log sigmoid(beta d) - e log sigmoid(-beta d),   e the label smoothing
// (TRL's loss_type sigmoid; with e > 0 the conservative DPO of the paper's authors).
PreferenceLoss SigmoidPreferenceLoss(const at::Tensor& chosen, const at::Tensor& rejected,
                                     const at::Tensor& ref_chosen, const at::Tensor& ref_rejected,
                                     const PreferenceLossOptions& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_LOSS_H_
