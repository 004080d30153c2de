// WaitOnHost: for who goes on to look at what an operation has brought, or must know that it did.
//
//   RETURN_IF_ERROR(WaitOnHost(group, *work));    // the bytes are there
//
// Work::Wait() is enough for work that the same stream does afterwards.
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

// Returns when the operation is done, on every kind of group, at most at its deadline. Errors as
// Wait().
inline absl::Status WaitOnHost(const ProcessGroup& group, Work& work) {
  // As long as an event takes to be seen across the bus; a message takes longer.
  constexpr absl::Duration kPause = absl::Microseconds(20);
  RETURN_IF_ERROR(work.Wait());
  while (!work.IsCompleted()) absl::SleepFor(kPause);
  return group.status();
}

// All of them, also where one fails; the first error. `group` may be null where there are none.
inline absl::Status WaitForAll(const ProcessGroup* group,
                               const std::vector<std::unique_ptr<Work>>& works) {
  absl::Status status;
  for (const auto& work : works) status.Update(WaitOnHost(*group, *work));
  return status;
}

// The same, and lets go of them.
inline absl::Status FinishAll(const ProcessGroup* group,
                              std::vector<std::unique_ptr<Work>>& works) {
  absl::Status status = WaitForAll(group, works);
  works.clear();
  return status;
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_WAIT_ON_HOST_H_
