#include "services/trainer/algorithm/preference_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

const PreferenceLossKind* FindPreferenceLoss(config::v1::DpoLossType type) {
  static constexpr const PreferenceLossKind* kKinds[] = {
      &kSigmoidPreferenceLoss, &kSigmoidNormPreferenceLoss, &kIpoPreferenceLoss,
      &kHingePreferenceLoss,   &kRobustPreferenceLoss,
  };
  for (const PreferenceLossKind* kind : kKinds) {
    if (kind->type == type) return kind;
  }
  return nullptr;
}

PreferenceLoss ComputePreferenceLoss(const at::Tensor& chosen, const at::Tensor& rejected,
                                     const at::Tensor& ref_chosen, const at::Tensor& ref_rejected,
                                     const PreferenceLossOptions& options) {
  const at::Tensor chosen_rewards = options.beta * (chosen - ref_chosen);
  const at::Tensor rejected_rewards = options.beta * (rejected - ref_rejected);
  PreferenceLoss out;
  out.loss = options.kind->compute(chosen_rewards - rejected_rewards, options);
  out.chosen_rewards = chosen_rewards.detach();
  out.rejected_rewards = rejected_rewards.detach();
  return out;
}

}  // namespace tandem::trainer
