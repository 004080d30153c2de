// LocalCluster: runs the trainer ranks and rollout replicas of a run as child processes of this
// one, on this machine.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_LOCAL_CLUSTER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_LOCAL_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/rpc/child_process.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/served_folder.h"

namespace tandem::driver {

struct LocalClusterOptions {
  bool with_trainer = true;
  bool with_rollouts = true;
  // Commit this Hugging Face folder as version 0 instead of waiting for a trainer.
  std::string rollout_model;
  // Deadline for every process to answer health checks.
  absl::Duration start_timeout = absl::Minutes(5);
  // Polled while waiting; true ends the start with CANCELLED.
  std::function<bool()> interrupted;
  // RestartEnded() restarts the policy's rollouts; Health() then reports no error for them.
  bool restart_rollouts = false;
  // HOST:PORT of this process's metrics; empty: none. The trainer's ranks serve theirs on the next
  // ports, then the rollouts.
  std::string metrics;
  // HOST:PORT of the first replica's OpenAI-compatible endpoint; empty: none. The other replicas
  // take the next ports.
  std::string openai_listen;
  // Number of tensor-parallel ranks of each replica, if they differ; empty: the configuration's
  // number for each.
  std::vector<int64_t> replica_ranks;
  std::vector<ServedFolder> served_folders;
  bool trace = false;  // each process leaves `run_dir`/logs/NAME.trace.json at its end
  // Receives a message when a rollout ends and will restart.
  std::function<void(const std::string&)> note;
};

// Owns its processes: the destructor stops them, and the kernel kills them if this process dies.
// Thread-safe.
class LocalCluster {
 public:
  // Writes `run_dir`/logs/config.yaml (the configuration as given) and starts the processes; their
  // output goes to `run_dir`/logs. Returns when all are healthy. A process that ends or does not
  // come up in time is an error that names it, how it ended, and the last lines of its log.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const config::v1::RunConfig& config,
                                                             const LocalClusterOptions& options);
  ~LocalCluster();

  // Address of the trainer's leader; empty without a trainer.
  const std::string& trainer_address() const { return trainer_address_; }
  // The rollouts that are up.
  std::vector<RolloutFleet::Replica> replicas() const;

  // Address of a served folder's rollout, which it restarts as RestartEnded() does if it has ended:
  // empty until it is up again, and for an unknown name. Health() reports no error for it.
  std::string AddressOf(const std::string& served_name);

  // Restarts rollouts that have ended, with a growing pause while they fail to come up, and returns
  // those that are up. Does not wait for them.
  std::vector<RolloutFleet::Replica> RestartEnded();

  // OK while every process runs; otherwise names the one that ended, how, and the end of its log.
  // Waits up to `settle` for processes that are just ending, so that a connection error finds its
  // cause.
  absl::Status Health(absl::Duration settle = absl::ZeroDuration());

  // Adds the process that ended, if any, to a call's error, as its cause.
  absl::Status Explain(const absl::Status& status);

  // Sends SIGTERM to all, and SIGKILL after `grace`.
  void Stop(absl::Duration grace = absl::Seconds(10));

 private:
  struct Member {
    std::unique_ptr<rpc::ChildProcess> process;
    rpc::ChildProcessOptions start;  // to restart it with
    std::string log_path;
    std::string ready_path;
    bool is_rollout = false;  // of the policy
    bool is_served = false;   // of a served folder
    // The other tensor-parallel ranks of a rollout; this member is rank 0.
    std::vector<Member> followers;
    std::string address;  // empty until it is up
    absl::Duration pause;
    absl::Time start_again = absl::InfiniteFuture();  // when to restart it, once it has ended
  };

  explicit LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {}
  absl::StatusOr<Member> Spawn(const std::string& name, std::vector<std::string> argv,
                               std::vector<std::pair<std::string, std::string>> environment,
                               const std::string& run_dir);
  absl::Status AllRun(absl::Duration settle, bool with_rollouts, bool with_served);
  absl::Status AwaitReady(Member& member, const std::string& health_name, absl::Time deadline);
  std::vector<RolloutFleet::Replica> Up() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RestartIfEnded(Member& rollout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Spawns the rollouts of options_.served_folders. `gpus`: one for each, or empty.
  absl::StatusOr<std::vector<Member>> SpawnServed(int64_t threads,
                                                  absl::Span<const std::vector<std::string>> gpus,
                                                  const std::string& run_dir,
                                                  const std::string& config_path);
  // Spawns the `size` ranks of one replica. `gpus`: one for each rank, or empty.
  absl::StatusOr<Member> SpawnRollout(size_t replica, int64_t size,
                                      const std::vector<std::string>& gpus,
                                      const std::string& run_dir, std::vector<std::string> argv);

  const LocalClusterOptions options_;
  std::string trainer_address_;
  int num_spawned_ = 0;
  mutable absl::Mutex mu_;
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
};

// The folder of this program, which also holds the service binaries.
std::string BinaryFolder();

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_LOCAL_CLUSTER_H_
