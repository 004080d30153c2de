// Advantages of on-policy optimisation with the optimal baseline (OPO, 2505.23585); verl's opo.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_OPO_ADVANTAGES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_OPO_ADVANTAGES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::trainer {

// Reward - sum of length * reward of the group / sum of its lengths: long completions, whose
// gradients are larger, count more in the baseline. In a group of one, or without any token: the
// reward. lengths: trained-on tokens of each sample.
std::vector<double> OpoAdvantages(absl::Span<const double> rewards,
                                  absl::Span<const int64_t> lengths,
                                  absl::Span<const int64_t> groups, int64_t num_groups);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_OPO_ADVANTAGES_H_
