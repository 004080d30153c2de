#include "services/trainer/algorithm/preference_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

PreferenceLoss SigmoidPreferenceLoss(const at::Tensor& chosen, const at::Tensor& rejected,
                                     const at::Tensor& ref_chosen, const at::Tensor& ref_rejected,
                                     const PreferenceLossOptions& options) {
  const at::Tensor chosen_rewards = options.beta * (chosen - ref_chosen);
  const at::Tensor rejected_rewards = options.beta * (rejected - ref_rejected);
  const at::Tensor margin = chosen_rewards - rejected_rewards;
  PreferenceLoss out;
  out.loss = -at::log_sigmoid(margin) * (1 - options.label_smoothing) -
             at::log_sigmoid(-margin) * options.label_smoothing;
  out.chosen_rewards = chosen_rewards.detach();
  out.rejected_rewards = rejected_rewards.detach();
  return out;
}

}  // namespace tandem::trainer
