#include "services/trainer/algorithm/rollout_correction.h"

#include "services/trainer/algorithm/off_policy_metrics.h"
#include "services/trainer/algorithm/rejection.h"

namespace tandem::trainer {

void CorrectRollout(TrainingBatch& batch, const RolloutCorrectionOptions& options,
                    Metrics& metrics) {
  AddOffPolicyMetrics(batch, metrics);
  AssignImportanceWeights(batch, options.weights, metrics);
  RejectTokens(batch, options.rules, metrics);
  if (!options.bypass) return;
  for (Sequence& sequence : batch.sequences) sequence.old_logprobs = sequence.rollout_logprobs;
}

}  // namespace tandem::trainer
