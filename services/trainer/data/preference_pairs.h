// Preference pairs of a batch: every group has two samples of one prompt; the one with the larger
// reward is preferred.
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

// Returns pairs in order of groups. INVALID_ARGUMENT names a sample of a group that does not have
// two samples, has equal or non-finite rewards, or has a sample without a token to train on.
absl::StatusOr<std::vector<PreferencePair>> FindPreferencePairs(const TrainingBatch& batch);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_PREFERENCE_PAIRS_H_
