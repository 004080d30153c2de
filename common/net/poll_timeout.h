// The time that poll(2) is to wait, as it wants it.
#ifndef TANDEM_COMMON_NET_POLL_TIMEOUT_H_
#define TANDEM_COMMON_NET_POLL_TIMEOUT_H_

#include <algorithm>

#include "absl/time/time.h"

namespace tandem::net {

// In milliseconds, rounded up, lest the last one be spent spinning, and an hour at most; -1 for
// ever.
inline int PollTimeout(absl::Duration wait) {
  if (wait == absl::InfiniteDuration()) return -1;
  return static_cast<int>(absl::ToInt64Milliseconds(
      std::clamp(wait, absl::ZeroDuration(), absl::Hours(1)) + absl::Microseconds(999)));
}

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_POLL_TIMEOUT_H_
