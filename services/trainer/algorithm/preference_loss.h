// Preference losses (direct preference optimisation, 2305.18290): the policy learns which of two
// completions is preferred, from how much more likely each has become than under the reference.
// PreferenceLossKind is one of them, named by dpo.loss_type. Each is one file
// (sigmoid_preference_loss.cc, ...) and one line in preference_loss.cc.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_LOSS_H_

#include <ATen/core/Tensor.h>

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

struct PreferenceLossKind;
extern const PreferenceLossKind kSigmoidPreferenceLoss;
extern const PreferenceLossKind kSigmoidNormPreferenceLoss;
extern const PreferenceLossKind kIpoPreferenceLoss;
extern const PreferenceLossKind kHingePreferenceLoss;
extern const PreferenceLossKind kRobustPreferenceLoss;

struct PreferenceLossOptions {
  double beta = 0.1;             // how closely the policy is held to the reference
  double label_smoothing = 0.0;  // probability that a pair is labelled wrongly, in [0, 0.5)
  const PreferenceLossKind* kind = &kSigmoidPreferenceLoss;
};

struct PreferenceLossKind {
  config::v1::DpoLossType type;
  // The loss of each pair from its margin, beta ((chosen - rejected) - (ref_chosen - ref_rejected)).
  at::Tensor (*compute)(const at::Tensor& margin, const PreferenceLossOptions& options);
  // A completion's log-prob is the mean over its tokens, not their sum.
  bool is_length_normalized = false;
};

// All [num_pairs]. Only `loss` is differentiable, through the policy's log-probs.
struct PreferenceLoss {
  at::Tensor loss;
  at::Tensor chosen_rewards;    // beta (log pi - log pi_ref) of the chosen completions
  at::Tensor rejected_rewards;  // the same of the rejected ones
};

// Computes options.kind from log-probs of whole completions, [num_pairs] each.
PreferenceLoss ComputePreferenceLoss(const at::Tensor& chosen, const at::Tensor& rejected,
                                     const at::Tensor& ref_chosen, const at::Tensor& ref_rejected,
                                     const PreferenceLossOptions& options);

// Returns null for DPO_LOSS_TYPE_UNSPECIFIED, and for a value that preference_loss.cc does not list.
const PreferenceLossKind* FindPreferenceLoss(config::v1::DpoLossType type);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_LOSS_H_
