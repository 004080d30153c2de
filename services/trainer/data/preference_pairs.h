// The pairs of a batch of preferences: every group is two samples of one prompt, and the one of the
// larger reward is preferred.
#ifndef TANDEM_SERVICES_TRAINER_DATA_PREFERENCE_PAIRS_H_
#define TANDEM_SERVICES_TRAINER_DATA_PREFERENCE_PAIRS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// Indices into TrainingBatch::sequences.
struct PreferencePair {
  int64_t chosen = 0;
  int64_t rejected = 0;
};

// In order of groups. INVALID_ARGUMENT names the sample of a group that is not two, of equal or
// non-finite rewards, or without a token to train on.
absl::StatusOr<std::vector<PreferencePair>> FindPreferencePairs(const TrainingBatch& batch);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_PREFERENCE_PAIRS_H_
