// A run whose processes are started again whenever they end, each by itself, as an orchestrator
// does it: two trainer ranks, two rollouts, and the driver with --resume.
#ifndef TANDEM_TESTS_SUPPORT_SUPERVISED_RUN_H_
#define TANDEM_TESTS_SUPPORT_SUPERVISED_RUN_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/rpc/child_process.h"
#include "tests/support/container_network.h"
#include "tests/support/elastic_run.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

struct SupervisedRunOptions {
  std::string mode = "sync";
  std::string update_policy = "available";
  int64_t total_steps = 50;
  int64_t save_freq = 4;
  bool is_exact = false;      // numerics: exact
  bool own_networks = false;  // each process has a network namespace and an address of its own
};

// "trainer-0", "trainer-1", "rollout-0", "rollout-1", "driver". Every step trains kPrompts rows of
// a data set that has just as many as the run needs.
class SupervisedRun {
 public:
  static constexpr int64_t kPrompts = 2;
  static constexpr int64_t kSamples = 4;  // of each

  explicit SupervisedRun(const SupervisedRunOptions& options);
  // Ends everything.
  ~SupervisedRun();

  // Not OK where processes cannot have networks of their own here; nothing was started then.
  const absl::Status& status() const { return status_; }

  // SIGTERM; the supervisor starts it anew once it has ended.
  void Terminate(const std::string& name);
  // SIGKILL, likewise.
  void Kill(const std::string& name);

  // With own_networks: runs a command in the network of a process, true where it exits with 0.
  bool RunIn(const std::string& name, const std::vector<std::string>& command);

  // The last step that is done; 0 before the first.
  int64_t step() const;
  // How often the process was started.
  int64_t NumStarts(const std::string& name) const;
  // The driver has ended as it should.
  bool finished() const { return finished_; }
  // Judges the run's completions; closed, it holds the run where it is.
  GatedReward& reward() { return *reward_; }
  // What the processes said, the last lines of each life; for messages.
  std::string Logs() const;
  // Everything that one has said.
  std::string LogOf(const std::string& name) const;
  std::string run_dir() const { return folder_ / "run"; }

 private:
  struct Process {
    rpc::ChildProcessOptions start;
    std::unique_ptr<rpc::ChildProcess> child;
    int64_t num_starts = 0;
    absl::Time next_start = absl::InfinitePast();
  };

  void Add(const std::string& name, std::vector<std::string> argv,
           std::map<std::string, std::string> environment);
  // Where a process listens, and as which address others know it.
  std::string ListenOf(int number) const;
  std::string AddressOf(const std::string& name, int number) const;
  absl::Status MakeNetwork();
  void Describe();
  absl::StatusOr<std::unique_ptr<rpc::ChildProcess>> Launch(const rpc::ChildProcessOptions& start);
  void Supervise();
  void Tend(const std::string& name, Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const SupervisedRunOptions options_;
  const TempFolder folder_;
  std::vector<int> ports_;
  absl::Status status_;
  absl::Notification described_;
  std::unique_ptr<GatedReward> reward_;
  std::atomic<bool> finished_{false};
  std::atomic<bool> stopping_{false};
  mutable absl::Mutex mu_;
  std::map<std::string, Process> processes_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ContainerNetwork> network_;  // the supervisor's; null: all share this one's
  std::thread supervisor_;                     // children die with the thread that started them
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_SUPERVISED_RUN_H_
