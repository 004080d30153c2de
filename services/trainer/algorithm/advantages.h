// Advantages from the rewards of a group: how much better a completion did than its siblings.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// GRPO (2402.03300): (reward - mean of the group) / (standard deviation of the group + 1e-6), the
// deviation unbiased. Dr. GRPO (2503.20783): without the division. A group of one has mean 0 and
// deviation 1, so that its advantage is its reward, as in verl. groups[i] in [0, num_groups).
std::vector<double> GroupAdvantages(absl::Span<const double> rewards,
                                    absl::Span<const int64_t> groups, int64_t num_groups,
                                    bool divide_by_std);

// Gives every trained-on token of a sequence the sequence's advantage. Sequences that came with
// advantages of their own keep these, and their rewards still count in their group.
void AssignAdvantages(TrainingBatch& batch, bool divide_by_std);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_
