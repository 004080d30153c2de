#include "common/comm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace tandem::comm {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// A few microseconds: a peer that is just about to ring spares both sides the system calls.
constexpr int kSpins = 64;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Doorbell::Ring() {
  // Sequentially consistent, as in Sleep(): either this sees the sleeper, or the sleeper's futex
  // call sees the ring. Without FUTEX_PRIVATE_FLAG, because the sleepers are in other processes.
  rings_.fetch_add(1);
  if (sleepers_.load() != 0) {
    syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Doorbell::Sleep(uint32_t seen, absl::Duration timeout) {
  for (int i = 0; i < kSpins; ++i) {
    if (rings_.load() != seen) return;
    Pause();
  }
  if (timeout <= absl::ZeroDuration()) return;
  const timespec relative = absl::ToTimespec(timeout);
  sleepers_.fetch_add(1);
  // The kernel looks at the word again, so a ring since `seen` is not slept over.
  syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &relative, nullptr, 0);
  sleepers_.fetch_sub(1);
}

}  // namespace tandem::comm
