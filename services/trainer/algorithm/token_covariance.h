// The covariance of log-probs and advantages over the tokens of a step (2505.22617): its mean is the
// rate at which the entropy of the policy falls, to which few tokens contribute most.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_TOKEN_COVARIANCE_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_TOKEN_COVARIANCE_H_

#include <cstddef>
#include <vector>

#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

struct TokenCovariance {
  size_t sequence = 0;  // index in the batch
  size_t token = 0;     // index in `trained`
  // (log pi - mean of log pi) (A - mean of A), the means over all trained-on tokens of the batch.
  double value = 0;
};

// One for each trained-on token, in the batch's order. Needs old_logprobs, of the policy at the
// step's start, and advantages.
std::vector<TokenCovariance> TokenCovariances(const TrainingBatch& batch);

// Sets `selected` of every sequence: 1 for the given tokens, 0 for the others.
void SelectTokens(TrainingBatch& batch, const std::vector<TokenCovariance>& tokens);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_TOKEN_COVARIANCE_H_
