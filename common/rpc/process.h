// What a process owes to the one that started it.
#ifndef TANDEM_COMMON_RPC_PROCESS_H_
#define TANDEM_COMMON_RPC_PROCESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::rpc {

class ChildProcess;

// Makes the kernel kill this process (SIGKILL) when the thread that forked it ends, however it
// ends; exits at once where `parent_pid` is not the parent any more. ChildProcess arranges this for
// what it starts; a program that others start calls it first in main(), if it should not outlive
// them, with the parent that it was told, or 0 for the present one.
void DieWithParent(int parent_pid = 0);

// Tells whoever waits for `path` that this process serves at `address`: the file appears at once
// with its whole content. The folder must exist.
absl::Status WriteReadyFile(const std::string& path, absl::string_view address);

// Waits for the file that `child` writes with WriteReadyFile and returns the address. Fails as soon
// as the child has ended, naming how, and with DEADLINE_EXCEEDED after `timeout`. A file left over
// from an earlier life is the caller's to remove before it starts the child.
absl::StatusOr<std::string> WaitForReadyFile(const std::string& path, ChildProcess& child,
                                             absl::Duration timeout);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_PROCESS_H_
