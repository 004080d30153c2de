// Drops tokens and sequences whose trainer and rollout policies differ too much from training:
// verl's rollout_rs (docs/algo/rollout_corr.md; https://richardli.xyz/rl-collapse).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_REJECTION_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_REJECTION_H_

#include <vector>

#include "common/config/rollout_correction_spec.h"
#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// Removes the tokens that a rule rejects from `trained`. With d = clamp(log pi_old - log
// pi_rollout, -20, 20), the statistic of a token is d (kLogRatio), -d (kK1), d^2 / 2 (kK2) or
// exp(d) - 1 - d (kK3), that of a sequence the sum, mean or maximum over its tokens; a rule over
// sequences rejects all tokens of a sequence. Adds rollout_corr/rollout_rs_*. Needs old_logprobs
// and rollout_logprobs.
void RejectTokens(TrainingBatch& batch, const std::vector<config::RejectionRule>& rules,
                  Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_REJECTION_H_
