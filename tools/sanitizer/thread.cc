// What ThreadSanitizer needs to know in every program of the preset tsan.
//
// It sees what code does that was compiled with it. Abseil, OpenMP, gRPC and LibTorch were not: it
// would see the data that an absl::Mutex guards, and not the mutex. So the linker (--wrap, in
// tools/cmake/sanitizer.cmake) leads our calls of the locks through here, where each says what it
// orders. Nothing of our own is left out by that: two accesses without a lock are still a race.
#include <sanitizer/tsan_interface.h>

#include <cstddef>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

// A suppression leaves out a report of which a stack has that function or library in it. Each line
// names a library's, never a function of ours; what it names must be one library's alone.
extern "C" const char* __tsan_default_suppressions() {
  return
      // LibTorch counts references and frees storage in code that is not instrumented: what a
      // thread wrote into a tensor seems to race with the free() of another.
      "called_from_lib:libtorch_cpu.so\n"
      "called_from_lib:libc10.so\n"
      // Its futures pass callbacks between threads under an internal lock.
      "race:c10::ivalue::Future::invokeCallback\n"
      // LibTorch's OpenMP threads, started before the program's first own region.
      "called_from_lib:libgomp\n"
      // gRPC passes calls between threads under internal Abseil locks.
      "called_from_lib:libgrpc.so\n"
      "called_from_lib:libgrpc++.so\n"
      "called_from_lib:libprotobuf.so\n";
}

extern "C" const char* __tsan_default_options() { return "second_deadlock_stack=1"; }

namespace {

// Any thread's Unlock() or Await() may evaluate a waiter's condition, under the lock. Between pre
// and post ThreadSanitizer ignores accesses.
void BeforeWait(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
}
void AfterWait(absl::Mutex* mutex) { __tsan_mutex_post_lock(mutex, 0, 0); }

// The flag that the inline HasBeenNotified() reads: it follows the notification's mutex.
void* FlagOf(const absl::Notification* notification) {
  return const_cast<char*>(reinterpret_cast<const char*>(notification) + sizeof(absl::Mutex));
}

// A parallel region's start orders what came before it, its end what it did.
struct Region {
  void (*function)(void*);
  void* data;
};
void RunRegion(void* argument) {
  auto* const region = static_cast<Region*>(argument);
  __tsan_acquire(region);
  region->function(region->data);
  __tsan_release(region);
}

}  // namespace

// The linker's names: __real_X is the library's X, __wrap_X is what our code reaches when it calls
// X. NOLINTBEGIN
#define MUTEX(name) _ZN4absl7debian35Mutex##name
#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define REAL(name) JOIN(__real_, name)
#define WRAP(name) JOIN(__wrap_, name)
#define LOCK MUTEX(4LockEv)
#define UNLOCK MUTEX(6UnlockEv)
#define TRY_LOCK MUTEX(7TryLockEv)
#define DESTROY MUTEX(D1Ev)
#define AWAIT MUTEX(5AwaitERKNS0_9ConditionE)
#define AWAIT_TIMEOUT MUTEX(16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)
#define AWAIT_DEADLINE MUTEX(17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE)
#define CV_WAIT _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE
#define NOTIFY _ZN4absl7debian312Notification6NotifyEv
#define WAIT_NOTIFIED _ZNK4absl7debian312Notification19WaitForNotificationEv
#define WAIT_NOTIFIED_TIMEOUT \
  _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE

extern "C" {

void REAL(LOCK)(absl::Mutex*);
void WRAP(LOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, 0);
  REAL(LOCK)(mutex);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

void REAL(UNLOCK)(absl::Mutex*);
void WRAP(UNLOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, 0);
  REAL(UNLOCK)(mutex);
  __tsan_mutex_post_unlock(mutex, 0);
}

bool REAL(TRY_LOCK)(absl::Mutex*);
bool WRAP(TRY_LOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
  const bool locked = REAL(TRY_LOCK)(mutex);
  __tsan_mutex_post_lock(mutex, __tsan_mutex_try_lock | (locked ? 0 : __tsan_mutex_try_lock_failed),
                         0);
  return locked;
}

void REAL(DESTROY)(absl::Mutex*);
void WRAP(DESTROY)(absl::Mutex* mutex) {
  __tsan_mutex_destroy(mutex, 0);
  REAL(DESTROY)(mutex);
}

void REAL(AWAIT)(absl::Mutex*, const absl::Condition&);
void WRAP(AWAIT)(absl::Mutex* mutex, const absl::Condition& condition) {
  BeforeWait(mutex);
  REAL(AWAIT)(mutex, condition);
  AfterWait(mutex);
}

bool REAL(AWAIT_TIMEOUT)(absl::Mutex*, const absl::Condition&, absl::Duration);
bool WRAP(AWAIT_TIMEOUT)(absl::Mutex* mutex, const absl::Condition& condition,
                         absl::Duration timeout) {
  BeforeWait(mutex);
  const bool met = REAL(AWAIT_TIMEOUT)(mutex, condition, timeout);
  AfterWait(mutex);
  return met;
}

bool REAL(AWAIT_DEADLINE)(absl::Mutex*, const absl::Condition&, absl::Time);
bool WRAP(AWAIT_DEADLINE)(absl::Mutex* mutex, const absl::Condition& condition,
                          absl::Time deadline) {
  BeforeWait(mutex);
  const bool met = REAL(AWAIT_DEADLINE)(mutex, condition, deadline);
  AfterWait(mutex);
  return met;
}

void REAL(CV_WAIT)(absl::CondVar*, absl::Mutex*);
void WRAP(CV_WAIT)(absl::CondVar* condition, absl::Mutex* mutex) {
  BeforeWait(mutex);
  REAL(CV_WAIT)(condition, mutex);
  AfterWait(mutex);
}

void REAL(NOTIFY)(absl::Notification*);
void WRAP(NOTIFY)(absl::Notification* notification) {
  __tsan_release(FlagOf(notification));
  REAL(NOTIFY)(notification);
}

void REAL(WAIT_NOTIFIED)(const absl::Notification*);
void WRAP(WAIT_NOTIFIED)(const absl::Notification* notification) {
  REAL(WAIT_NOTIFIED)(notification);
  __tsan_acquire(FlagOf(notification));
}

bool REAL(WAIT_NOTIFIED_TIMEOUT)(const absl::Notification*, absl::Duration);
bool WRAP(WAIT_NOTIFIED_TIMEOUT)(const absl::Notification* notification, absl::Duration timeout) {
  const bool notified = REAL(WAIT_NOTIFIED_TIMEOUT)(notification, timeout);
  if (notified) __tsan_acquire(FlagOf(notification));
  return notified;
}

// Null in a program without OpenMP, which never comes here.
__attribute__((weak)) void __real_GOMP_parallel(void (*function)(void*), void* data,
                                                unsigned threads, unsigned flags);
void __wrap_GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags) {
  Region region{function, data};
  __tsan_release(&region);
  __real_GOMP_parallel(RunRegion, &region, threads, flags);
  __tsan_acquire(&region);
}

}  // extern "C"
// NOLINTEND
