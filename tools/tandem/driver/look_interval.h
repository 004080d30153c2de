// How often a caller that waits looks up.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_LOOK_INTERVAL_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_LOOK_INTERVAL_H_

#include "absl/time/time.h"

namespace tandem::driver {

// Between two looks at what a waiting caller should do meanwhile.
inline constexpr absl::Duration kLook = absl::Milliseconds(200);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_LOOK_INTERVAL_H_
