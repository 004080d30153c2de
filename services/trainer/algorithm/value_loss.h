// The critic's loss: the squared error of its values against the returns, clipped as in PPO
// implementations (1707.06347; verl's compute_value_loss).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_VALUE_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_VALUE_LOSS_H_

#include <ATen/core/Tensor.h>

namespace tandem::trainer {

// All [num_rows]. Only `loss` is differentiable, through the values.
struct ValueLoss {
  at::Tensor loss;     // of each token
  at::Tensor clipped;  // 1 if the loss used the clipped value
};

// With v_clip = clamp(v, v_old - cliprange, v_old + cliprange):
//   loss = max((v - R)^2, (v_clip - R)^2) / 2.
// old_values are the critic's at the start of the step. All [num_rows].
ValueLoss ClippedValueLoss(const at::Tensor& values, const at::Tensor& old_values,
                           const at::Tensor& returns, double cliprange);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_VALUE_LOSS_H_
