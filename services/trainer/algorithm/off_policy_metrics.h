// Measures how far the policy that sampled a batch is from the trainer's, without correcting it
// (verl's compute_offpolicy_metrics).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_OFF_POLICY_METRICS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_OFF_POLICY_METRICS_H_

#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// rollout_corr/: kl and k3_kl of the rollout's policy against the trainer's (means over tokens),
// training_ppl, rollout_ppl and their logarithms (per sequence, averaged), log_ppl_diff and its
// extremes, ppl_ratio, chi2_token and chi2_seq (mean square of the ratio, of tokens and of whole
// sequences, minus 1). Adds none if a trained-on token lacks old_logprobs or rollout_logprobs.
void AddOffPolicyMetrics(const TrainingBatch& batch, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_OFF_POLICY_METRICS_H_
