// The roll call of a launch: every rank announces itself in the rendezvous store before it joins a
// group, and rank 0 says who is missing while it waits.
#ifndef TANDEM_COMMON_COMM_ROLL_CALL_H_
#define TANDEM_COMMON_COMM_ROLL_CALL_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

struct RollCallOptions {
  Rendezvous rendezvous;
  int rank = 0;
  int size = 1;
  absl::Duration timeout = absl::Minutes(5);
  absl::Duration interval = absl::Seconds(10);  // between calls of on_missing
  const absl::Notification* cancel = nullptr;   // ends the wait with CANCELLED; may be null
  // On rank 0: receives the ranks that have not announced themselves, ascending, once per interval.
  std::function<void(const std::vector<int>&)> on_missing;
};

// Announces this rank; rank 0 returns when all have. Errors: DEADLINE_EXCEEDED names the missing
// ranks; CANCELLED; UNAVAILABLE if the store is gone.
absl::Status CallRoll(const RollCallOptions& options);

// The rendezvous for what a rank does after its roll call: the store was up, so a rank that cannot
// connect to it any more gives up after five seconds with UNAVAILABLE, instead of waiting until its
// timeout for a rank 0 that has ended.
Rendezvous AfterRollCall(Rendezvous rendezvous);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_ROLL_CALL_H_
