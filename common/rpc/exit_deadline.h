// ExitDeadline: ends a process whose orderly end takes too long, so that work which nothing can
// interrupt does not outlive the process's users.
//
//   termination.Wait();
//   const rpc::ExitDeadline deadline(grace + kEndMargin);
//   server->Drain(grace);
#ifndef TANDEM_COMMON_RPC_EXIT_DEADLINE_H_
#define TANDEM_COMMON_RPC_EXIT_DEADLINE_H_

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

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

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_EXIT_DEADLINE_H_
