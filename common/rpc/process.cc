#include "common/rpc/process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/io/atomic_file.h"
#include "common/rpc/child_process.h"

namespace tandem::rpc {

void DieWithParent(int parent_pid) {
  if (parent_pid == 0) parent_pid = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent_pid) _exit(1);  // it ended before the line above
}

absl::Status WriteReadyFile(const std::string& path, absl::string_view address) {
  return io::WriteFileAtomically(path, absl::StrCat(address, "\n"));
}

absl::StatusOr<std::string> WaitForReadyFile(const std::string& path, ChildProcess& child,
                                             absl::Duration timeout) {
  constexpr absl::Duration kPoll = absl::Milliseconds(10);
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    if (std::ifstream file(path); file) {
      std::string address;
      std::getline(file, address);
      if (!address.empty()) return address;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "%s was not ready within %s (no %s)", child.name(), absl::FormatDuration(timeout), path));
    }
    if (child.Wait(std::min(left, kPoll))) {
      const absl::Status end = child.ExitStatus();
      return absl::UnavailableError(absl::StrCat(
          "it exited before it was ready: ",
          end.ok() ? absl::StrCat(child.name(), " exited with 0") : std::string(end.message())));
    }
  }
}

}  // namespace tandem::rpc
