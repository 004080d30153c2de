// A child process that cannot outlive its parent.
//
//   rpc::ChildProcessOptions options = {.name = "trainer rank 0",
//                                       .argv = {"build/bin/tandem-trainer", "--config=run.yaml"},
//                                       .environment = {{"RANK", "0"}},
//                                       .log_path = run_dir + "/trainer-0.log"};
//   ASSIGN_OR_RETURN(auto rank, rpc::ChildProcess::Start(std::move(options)));
//   rank->Terminate();
//   if (!rank->Wait(absl::Seconds(20))) rank->Kill();
#ifndef TANDEM_COMMON_RPC_CHILD_PROCESS_H_
#define TANDEM_COMMON_RPC_CHILD_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/host/memory_limit.h"

namespace tandem::rpc {

struct ChildProcessOptions {
  // Names the child in messages; empty: the program's path.
  std::string name;
  // argv[0] is a path, or a name to look up in PATH.
  std::vector<std::string> argv;
  // Variables to add to, or replace in, this process's environment.
  std::map<std::string, std::string> environment;
  // Whether the child gets this process's variable of that name. Null: it gets all.
  std::function<bool(const std::string& name)> inherits;
  // File to append stdout and stderr to. Empty: both go to this process's stderr, because its
  // stdout is for data.
  std::string log_path;
  // This process's descriptors that become the child's stdin, stdout and stderr; the caller keeps
  // them. -1: /dev/null for stdin, the log for the others.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  // Gives the child a process group of its own: Ctrl-C in the terminal reaches the parent only,
  // which then stops the child in order; signals reach everything that the child started.
  bool own_process_group = true;
  // Where the kernel counts processes killed for lack of memory; tests use other places.
  host::ControlGroupPlace control_groups;
  std::string vmstat = "/proc/vmstat";
  // Called once, on a thread of its own, when the child has ended. Must not destroy the child.
  std::function<void()> on_exit;
};

// The kernel kills the child when this process ends, even by SIGKILL. Thread-safe.
class ChildProcess {
 public:
  // Returns once the program runs. NOT_FOUND or another code, with the path, if it cannot.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(ChildProcessOptions options);
  // Kills the child if it still runs, and waits for it to end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& name() const { return options_.name; }

  // Sends a signal; no effect once the child has ended.
  void Signal(int signal);
  void Terminate();  // SIGTERM
  void Kill();       // SIGKILL

  // Returns true once the child has ended, false if it still runs after `timeout`.
  bool Wait(absl::Duration timeout);
  bool running() { return !Wait(absl::ZeroDuration()); }

  // Sends SIGTERM, then SIGKILL after `grace`; returns when the child has ended.
  void Stop(absl::Duration grace);

  // OK for exit status 0, otherwise an error with ExitDescription(); FAILED_PRECONDITION while the
  // child runs.
  absl::Status ExitStatus();
  // "running", "exited with 1", "killed by SIGKILL", followed by a hint if the kernel killed
  // processes for lack of memory meanwhile.
  std::string ExitDescription();

 private:
  explicit ChildProcess(ChildProcessOptions options);
  void Reap();

  const ChildProcessOptions options_;
  pid_t pid_ = -1;
  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int wait_status_ ABSL_GUARDED_BY(mu_) = 0;
  host::MemoryKills kills_before_;
  std::string memory_hint_ ABSL_GUARDED_BY(mu_);
  std::thread reaper_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CHILD_PROCESS_H_
