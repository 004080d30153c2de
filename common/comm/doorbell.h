// Doorbell: wakes threads that wait for a change, across processes (a futex). It lies in shared
// memory; zero bytes are a valid Doorbell that never rang.
//
//   const uint32_t seen = bell.rings();
//   if (!ThereIsSomethingToDo()) bell.Sleep(seen, absl::Milliseconds(10));   // misses no ring
#ifndef TANDEM_COMMON_COMM_DOORBELL_H_
#define TANDEM_COMMON_COMM_DOORBELL_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace tandem::comm {

// Any thread of any process.
class alignas(64) Doorbell {
 public:
  uint32_t rings() const { return rings_.load(); }
  // Release: a waiter that wakes sees every earlier write. Makes a system call only if a thread
  // sleeps.
  void Ring();
  // Returns once rings() differs from `seen`, or after `timeout`; wakeups may be spurious.
  void Sleep(uint32_t seen, absl::Duration timeout);

 private:
  std::atomic<uint32_t> rings_{0};  // the futex word
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_DOORBELL_H_
