// Estimators of the divergence of the policy from the reference, from the log-probs of sampled
// tokens (http://joschu.net/blog/kl-approx.html).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_KL_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_KL_LOSS_H_

#include <ATen/core/Tensor.h>

namespace tandem::trainer {

enum class KlEstimator { kK1, kAbs, kK2, kK3 };

// With d = log pi - log pi_ref, for each token: k1 = d, abs = |d|, k2 = d^2 / 2, k3 = exp(-d) + d
// - 1. In k3, d is clamped to +-20 and the result to +-10, as in verl; there the gradient is 0.
// Differentiable in logprobs.
at::Tensor KlLoss(const at::Tensor& logprobs, const at::Tensor& ref_logprobs,
                  KlEstimator estimator);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_KL_LOSS_H_
