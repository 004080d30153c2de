// A child process that cannot outlive its parent.
//
//   ASSIGN_OR_RETURN(auto rank, rpc::ChildProcess::Start({.name = "trainer rank 0",
//                                                         .argv = {"build/bin/tandem-trainer",
//                                                         ...}, .environment = {{"RANK", "0"}},
//                                                         .log_path = run_dir +
//                                                         "/trainer-0.log"}));
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
#include "common/probe/memory_limit.h"

namespace tandem::rpc {

struct ChildProcessOptions {
  // Stands in messages; the program's path where empty.
  std::string name;
  // argv[0] is a path, or a name that is looked up in PATH.
  std::vector<std::string> argv;
  // Added to this process's environment, or replacing what it says.
  std::map<std::string, std::string> environment;
  // stdout and stderr are appended to this file; where empty, both go to this process's stderr, for
  // stdout belongs to data.
  std::string log_path;
  // A process group of its own: Ctrl-C in the terminal reaches the parent only, which then stops
  // the child in order; signals go to all that the child started.
  bool own_process_group = true;
  // Where the kernel counts what it ended for want of memory; other places in tests.
  probe::ControlGroupPlace control_groups;
  std::string vmstat = "/proc/vmstat";
  // Called once, on a thread of its own, when the child has ended. It must not destroy the child.
  std::function<void()> on_exit;
};

// The kernel kills the child when this process ends, even by SIGKILL. Thread-safe.
class ChildProcess {
 public:
  // Returns once the program runs; NOT_FOUND or another code, with the path, where it cannot.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(ChildProcessOptions options);
  // Kills the child where it still runs, and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& name() const { return options_.name; }

  // Sends a signal; harmless once the child has ended.
  void Signal(int signal);
  void Terminate();  // SIGTERM
  void Kill();       // SIGKILL

  // True when the child has ended, false when it still runs after `timeout`.
  bool Wait(absl::Duration timeout);
  bool running() { return !Wait(absl::ZeroDuration()); }

  // Asks with SIGTERM, insists with SIGKILL after `grace`; returns when the child has ended.
  void Stop(absl::Duration grace);

  // How it ended: OK for exit status 0, otherwise an error with ExitDescription();
  // FAILED_PRECONDITION while it runs.
  absl::Status ExitStatus();
  // "running", "exited with 1", "killed by SIGKILL"; behind that a hint where the kernel ended
  // processes for want of memory meanwhile.
  std::string ExitDescription();

 private:
  explicit ChildProcess(ChildProcessOptions options);
  void Reap();

  const ChildProcessOptions options_;
  pid_t pid_ = -1;
  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int wait_status_ ABSL_GUARDED_BY(mu_) = 0;
  probe::MemoryKills kills_before_;
  std::string memory_hint_ ABSL_GUARDED_BY(mu_);
  std::thread reaper_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CHILD_PROCESS_H_
