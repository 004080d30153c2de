// ServiceProcess: the user's program that serves the EnvironmentService, as a child of this process.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<ServiceProcess> service,
//                    ServiceProcess::Start({.command = "python3 env.py $TANDEM_ENVIRONMENT_ENDPOINT",
//                                           .endpoint = "127.0.0.1:5100"}));
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_SERVICE_PROCESS_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_SERVICE_PROCESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/child_process.h"

namespace tandem::environment {

// Restarts the program when it ends, after a pause that doubles while it ends soon. Destruction ends
// it: SIGTERM, then SIGKILL, for all of its process group. Thread-safe.
class ServiceProcess {
 public:
  struct Options {
    std::string command;   // for /bin/sh
    std::string endpoint;  // where it is to serve: its TANDEM_ENVIRONMENT_ENDPOINT
    std::string log_path;  // for what it writes; empty: this process's stderr
    absl::Duration first_pause = absl::Milliseconds(500);
    absl::Duration longest_pause = absl::Seconds(30);
  };

  // Errors: those of ChildProcess::Start().
  static absl::StatusOr<std::unique_ptr<ServiceProcess>> Start(Options options);
  ~ServiceProcess();

  // How the program ended last; OK if it never has.
  absl::Status last_end() const;
  int64_t num_starts() const;

 private:
  explicit ServiceProcess(Options options) : options_(std::move(options)) {}
  absl::StatusOr<std::unique_ptr<rpc::ChildProcess>> StartOnce() const;
  void KeepRunning();

  const Options options_;
  std::unique_ptr<rpc::ChildProcess> process_;  // used by the thread, once it runs
  mutable absl::Mutex mu_;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status last_end_ ABSL_GUARDED_BY(mu_);
  int64_t num_starts_ ABSL_GUARDED_BY(mu_) = 1;
  std::thread thread_;
};

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_SERVICE_PROCESS_H_
