// SIGTERM and SIGINT as an event: no work happens in a signal handler.
//
//   rpc::TerminationSignal termination;     // first in main(), before other threads start
//   ...
//   termination.Wait();
//   server->Drain(grace);
#ifndef TANDEM_COMMON_RPC_TERMINATION_SIGNAL_H_
#define TANDEM_COMMON_RPC_TERMINATION_SIGNAL_H_

#include <signal.h>

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::rpc {

// Blocks both signals in the constructing thread, hence in threads that it starts later, and waits
// for them on a thread of its own. A second signal ends the process at once with 128 + its number.
// At most one per process. Thread-safe.
class TerminationSignal {
 public:
  TerminationSignal();
  // Restores the signals' former mask in the calling thread.
  ~TerminationSignal();
  TerminationSignal(const TerminationSignal&) = delete;
  TerminationSignal& operator=(const TerminationSignal&) = delete;

  // Blocks until a signal comes; returns its number.
  int Wait();
  // Returns the signal's number, or 0 if none came within `timeout`.
  int WaitFor(absl::Duration timeout);
  // The first signal received, or 0.
  int received() { return WaitFor(absl::ZeroDuration()); }

  // Calls `callback` on the waiting thread when a signal comes; at once if one has come already. It
  // should set something and return.
  void OnSignal(std::function<void()> callback);

  // Acts as if `signal` had come: for other reasons to end, such as a lost parent, and for tests.
  void Trigger(int signal);

 private:
  void WatchSignals();

  sigset_t watched_;
  sigset_t former_;
  int stop_fd_;
  int signal_fd_;
  absl::Mutex mu_;
  int received_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::function<void()>> callbacks_ ABSL_GUARDED_BY(mu_);
  std::thread watcher_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_TERMINATION_SIGNAL_H_
