// Converts a duration to the timeout argument of poll(2).
#ifndef TANDEM_COMMON_NET_POLL_TIMEOUT_H_
#define TANDEM_COMMON_NET_POLL_TIMEOUT_H_

#include <algorithm>

#include "absl/time/time.h"

namespace tandem::net {

// Returns milliseconds, rounded up so that the last one is not spent spinning, at most one hour; -1
// (no timeout) for an infinite duration.
inline int PollTimeout(absl::Duration wait) {
  if (wait == absl::InfiniteDuration()) return -1;
  return static_cast<int>(absl::ToInt64Milliseconds(
      std::clamp(wait, absl::ZeroDuration(), absl::Hours(1)) + absl::Microseconds(999)));
}

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_POLL_TIMEOUT_H_
