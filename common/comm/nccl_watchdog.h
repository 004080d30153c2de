// NcclWatchdog: one thread per process that looks at every NCCL connection and breaks those whose
// operations failed or are late. It starts with the first connection, sleeps while there is none,
// and never ends; it makes no call that waits. Aborts, which may wait, run on a thread of their own,
// one per family that breaks; a process that exits waits for them, because they free memory of a GPU,
// which the end of the process takes away.
#ifndef TANDEM_COMMON_COMM_NCCL_WATCHDOG_H_
#define TANDEM_COMMON_COMM_NCCL_WATCHDOG_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/comm/nccl_connection.h"

namespace tandem::comm {

// Any thread.
class NcclWatchdog {
 public:
  static NcclWatchdog& OfProcess();

  void Add(std::weak_ptr<NcclConnection> connection);
  // Breaks all connections of the origin's family, then aborts their communicators together.
  // Returns once all are broken.
  void BreakFamily(NcclConnection& origin, const absl::Status& reason);
  // Aborts connections whose abort the caller has claimed, on a thread of its own.
  void Abort(std::vector<std::shared_ptr<NcclConnection>> claimed);
  // Returns whether no abort is under way, by `timeout` at the latest.
  bool AwaitAborts(absl::Duration timeout);

 private:
  NcclWatchdog();
  void Run();
  // Drops those that are gone.
  std::vector<std::shared_ptr<NcclConnection>> Connections();

  absl::Mutex mu_;  // held for these only
  std::vector<std::weak_ptr<NcclConnection>> connections_ ABSL_GUARDED_BY(mu_);
  int aborts_ ABSL_GUARDED_BY(mu_) = 0;  // threads
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_NCCL_WATCHDOG_H_
