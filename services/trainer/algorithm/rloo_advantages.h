// Advantages of REINFORCE leave-one-out (2402.14740); verl's rloo.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_RLOO_ADVANTAGES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_RLOO_ADVANTAGES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::trainer {

// Reward - mean reward of the others of its group. In a group of one: the reward.
std::vector<double> RlooAdvantages(absl::Span<const double> rewards,
                                   absl::Span<const int64_t> groups, int64_t num_groups);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_RLOO_ADVANTAGES_H_
