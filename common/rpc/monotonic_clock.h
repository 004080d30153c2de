// A clock for leases: time since some fixed moment. Nobody can set it; tests advance it by hand.
#ifndef TANDEM_COMMON_RPC_MONOTONIC_CLOCK_H_
#define TANDEM_COMMON_RPC_MONOTONIC_CLOCK_H_

#include <chrono>
#include <functional>

#include "absl/time/time.h"

namespace tandem::rpc {

using MonotonicClock = std::function<absl::Duration()>;

inline absl::Duration MonotonicNow() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_MONOTONIC_CLOCK_H_
