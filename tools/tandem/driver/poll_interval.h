// kPollInterval: how often a waiting caller looks for other work.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_POLL_INTERVAL_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_POLL_INTERVAL_H_

#include "absl/time/time.h"

namespace tandem::driver {

// A waiting caller checks this often for an interrupt and other work.
inline constexpr absl::Duration kPollInterval = absl::Milliseconds(200);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_POLL_INTERVAL_H_
