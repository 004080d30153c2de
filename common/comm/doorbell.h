// Doorbell: says to whoever sleeps on it that something may have changed. It lies in memory that
// processes share, where zero bytes are one that never rang.
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
  // What was written before is seen by those who hear it. A system call only where one sleeps.
  void Ring();
  // Returns once it rang after rings() was `seen`, or after `timeout`; now and then for no reason.
  void Sleep(uint32_t seen, absl::Duration timeout);

 private:
  std::atomic<uint32_t> rings_{0};  // the futex word
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_DOORBELL_H_
