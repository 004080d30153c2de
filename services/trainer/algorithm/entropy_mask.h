// Trains on the tokens of the highest entropy only: the forks of the text, where the policy is
// undecided (2506.01939); TRL's top_entropy_quantile.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_ENTROPY_MASK_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_ENTROPY_MASK_H_

#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// Sets importance weights to 0 for tokens whose entropy is below the (1 - share)-quantile of the
// batch, interpolated between the two values around it. Needs `entropies`. The masked tokens still
// count where losses are averaged, as in TRL. Returns the quantile; 0 for a batch without tokens.
double MaskLowEntropy(TrainingBatch& batch, double share);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_ENTROPY_MASK_H_
