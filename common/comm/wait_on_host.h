// WaitOnHost: blocks the calling thread until an operation has really finished, for callers that
// read its result on the host.
//
//   RETURN_IF_ERROR(WaitOnHost(group, *work));    // the bytes have arrived
//
// Work::Wait() is enough if only the same CUDA stream uses the result.
#ifndef TANDEM_COMMON_COMM_WAIT_ON_HOST_H_
#define TANDEM_COMMON_COMM_WAIT_ON_HOST_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "common/status/status_macros.h"

namespace tandem::comm {

// Returns when the operation is done, on every kind of group, at the latest at its deadline.
// Errors: those of Wait().
inline absl::Status WaitOnHost(const ProcessGroup& group, Work& work) {
  // About the time that an event takes to become visible across the bus; a message takes longer.
  constexpr absl::Duration kPause = absl::Microseconds(20);
  RETURN_IF_ERROR(work.Wait());
  while (!work.IsCompleted()) absl::SleepFor(kPause);
  return group.status();
}

// Waits for all works even if one fails; returns the first error. `group` may be null if `works` is
// empty.
inline absl::Status WaitForAll(const ProcessGroup* group,
                               const std::vector<std::unique_ptr<Work>>& works) {
  absl::Status status;
  for (const auto& work : works) status.Update(WaitOnHost(*group, *work));
  return status;
}

// Like WaitForAll(), then clears `works`.
inline absl::Status FinishAll(const ProcessGroup* group,
                              std::vector<std::unique_ptr<Work>>& works) {
  absl::Status status = WaitForAll(group, works);
  works.clear();
  return status;
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_WAIT_ON_HOST_H_
