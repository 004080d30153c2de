// Validates a reshard plan independently of how it was made: for tests, and for plans received from
// elsewhere.
#ifndef TANDEM_COMMON_WEIGHTS_RESHARD_CHECK_H_
#define TANDEM_COMMON_WEIGHTS_RESHARD_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/weights/holdings.h"
#include "common/weights/reshard_plan.h"

namespace tandem::weights {

// OK if every element that a receiver holds arrives exactly once, in its place, from a sender that
// holds it where the plan says, nothing else arrives, and no message exceeds the bucket size. Else
// INTERNAL with message, ranks and tensor. Time and memory grow with the number of pieces.
absl::Status CheckCoverage(const ReshardPlan& plan, const Holdings& from, const Holdings& to);

// How evenly the load is spread over the senders.
struct SenderBalance {
  int64_t max_bytes = 0;
  double mean_bytes = 0;  // over all senders, of what one replica needs
  double max_over_mean = 0;
};
SenderBalance BalanceOf(const ReshardPlan& plan);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_CHECK_H_
