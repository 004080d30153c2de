// Group sequence policy optimisation (2507.18071): one ratio for a whole sequence; verl's gspo.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_GSPO_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_GSPO_LOSS_H_

#include <ATen/core/Tensor.h>

#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {

// With s = exp(mean over the sequence of log pi - log pi_old), each token's ratio is s in value and
// has the gradient of s times its own log-prob's: exp(log pi - sg(log pi) + sg(log s)), its
// exponent at most 10. Then
//   loss = max(-A s, -A clip(s, 1 - low, 1 + high)).
// There is no dual clip. `rows` says which rows are a sequence.
PolicyLoss GspoLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                    const at::Tensor& advantages, const SequenceRows& rows,
                    const ClipOptions& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_GSPO_LOSS_H_
