// Abseil's debug check of the order in which mutexes are locked.
//
//   host::SkipLockOrderChecks();  // early in main()
#ifndef TANDEM_COMMON_HOST_LOCK_ORDER_CHECKS_H_
#define TANDEM_COMMON_HOST_LOCK_ORDER_CHECKS_H_

namespace tandem::host {

// Debian builds Abseil with its debug checks: each lock of an absl::Mutex, gRPC's too, enters a graph of
// the process behind one spin lock, and an order that might deadlock aborts the process. Tests keep the
// check; programs that serve or drive a run do without, which makes a step of a small model 3 % shorter.
void SkipLockOrderChecks();

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_LOCK_ORDER_CHECKS_H_
