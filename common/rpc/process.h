// The contract between a process and its parent.
#ifndef TANDEM_COMMON_RPC_PROCESS_H_
#define TANDEM_COMMON_RPC_PROCESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::rpc {

class ChildProcess;

// Makes the kernel kill this process (SIGKILL) when the thread that forked it ends, for any reason;
// exits at once if `parent_pid` is no longer the parent. ChildProcess arranges this for its
// children. A program that others start, and that should not outlive them, calls it first in main()
// with the parent's pid that it was given, or 0 for the present parent.
void DieWithParent(int parent_pid = 0);

// Tells whoever waits for `path` that this process serves at `address`. The file appears atomically
// with its whole content. The folder must exist.
absl::Status WriteReadyFile(const std::string& path, absl::string_view address);

// Waits for the file that `child` writes with WriteReadyFile and returns the address. Fails as soon
// as the child has ended, with how it ended, and with DEADLINE_EXCEEDED after `timeout`. The caller
// removes a stale file before it starts the child.
absl::StatusOr<std::string> WaitForReadyFile(const std::string& path, ChildProcess& child,
                                             absl::Duration timeout);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_PROCESS_H_
