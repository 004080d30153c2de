// Time left until a deadline, for groups and stores, which do not accept a timeout of zero.
#ifndef TANDEM_COMMON_COMM_TIME_LEFT_H_
#define TANDEM_COMMON_COMM_TIME_LEFT_H_

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::comm {

// Returns at least one millisecond.
inline absl::Duration TimeLeft(absl::Time deadline) {
  return std::max(absl::Milliseconds(1), deadline - absl::Now());
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_TIME_LEFT_H_
