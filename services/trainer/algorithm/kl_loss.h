// Estimators of the divergence of the policy from the reference, from the log-probs of sampled
// tokens (http://joschu.net/blog/kl-approx.html).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_KL_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_KL_LOSS_H_

#include <ATen/core/Tensor.h>

namespace tandem::trainer {

enum class KlEstimator { kK1, kAbs, kK2, kK3, kK1Plus, kK3Plus };

// With d = log pi - log pi_ref, for each token: k1 = d, abs = |d|, k2 = d^2 / 2, k3 = exp(-d) + d
// - 1. In k3, d is clamped to +-20 and the result to +-10, as in verl; there the gradient is 0.
// k1_plus and k3_plus have the values of k1 and k3 and the gradient of k2. On samples of the policy
// that is the divergence's own, which those of k1 (0 on average) and k3 are not.
// Differentiable in logprobs.
at::Tensor KlLoss(const at::Tensor& logprobs, const at::Tensor& ref_logprobs,
                  KlEstimator estimator);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_KL_LOSS_H_
