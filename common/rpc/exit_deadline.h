// ExitDeadline: ends a process whose orderly end takes too long, so that work which nothing can
// interrupt does not outlive the process's users.
//
//   termination.Wait();
//   const rpc::ExitDeadline deadline(grace + kEndMargin);
//   server->Drain(grace);
#ifndef TANDEM_COMMON_RPC_EXIT_DEADLINE_H_
#define TANDEM_COMMON_RPC_EXIT_DEADLINE_H_

#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/rpc/termination_signal.h"

namespace tandem::rpc {

// Waits on a thread of its own; without a thread to be had, there is no deadline.
class ExitDeadline {
 public:
  // Logs an error and ends the process with status 1 `after` from now.
  explicit ExitDeadline(absl::Duration after);
  // Calls it off.
  ~ExitDeadline();
  ExitDeadline(const ExitDeadline&) = delete;
  ExitDeadline& operator=(const ExitDeadline&) = delete;

 private:
  absl::Notification ended_;
  std::thread thread_;
};

// An ExitDeadline that begins with a termination signal, whatever the process does then: also while
// it starts, and while its objects are destroyed.
class TerminationDeadline {
 public:
  TerminationDeadline(TerminationSignal& termination, absl::Duration after);
  // Calls it off.
  ~TerminationDeadline() = default;
  TerminationDeadline(const TerminationDeadline&) = delete;
  TerminationDeadline& operator=(const TerminationDeadline&) = delete;

 private:
  // Shared with the signal's callback, which may come during the destructor.
  const std::shared_ptr<std::unique_ptr<ExitDeadline>> deadline_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_EXIT_DEADLINE_H_
