// Advantages of GRPO (2402.03300, DeepSeekMath) and Dr. GRPO (2503.20783); verl's grpo.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_GRPO_ADVANTAGES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_GRPO_ADVANTAGES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::trainer {

// Added to a deviation before division.
inline constexpr double kDeviationEps = 1e-6;

// The unbiased standard deviation of the rewards of each group; 1 in a group of one. groups[i] in
// [0, num_groups).
std::vector<double> GroupDeviations(absl::Span<const double> rewards,
                                    absl::Span<const int64_t> groups, int64_t num_groups);

// GRPO: (reward - mean of the group) / (standard deviation of the group + 1e-6), the deviation
// unbiased. Dr. GRPO: without the division. A group of one has mean 0 and deviation 1. groups[i] in
// [0, num_groups).
std::vector<double> GrpoAdvantages(absl::Span<const double> rewards,
                                   absl::Span<const int64_t> groups, int64_t num_groups,
                                   bool divide_by_std);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_GRPO_ADVANTAGES_H_
