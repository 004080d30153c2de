// Session: the services that a command talks to, started here or already up, and the interrupt that
// ends it.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_SESSION_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_SESSION_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/rpc/termination_signal.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/endpoint_list.h"
#include "tools/tandem/driver/local_cluster.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::commands {

struct SessionOptions {
  bool local = false;  // start processes; otherwise connect to the configuration's endpoints
  bool needs_trainer = true;
  bool needs_rollouts = true;
  std::string rollout_model;  // see LocalClusterOptions
  // Replicas join and leave as trainer.update_policy says; otherwise they are those of the start.
  bool is_elastic = false;
  std::string metrics;                 // see LocalClusterOptions
  std::string openai_listen;           // likewise
  std::vector<int64_t> replica_ranks;  // likewise
  bool trace = false;                  // likewise
  // Told of replicas that come and go, from any thread.
  std::function<void(const std::string&)> note;
};

// Made first in a command, before it starts threads. Used by the command's thread.
class Session {
 public:
  Session();
  ~Session();

  // Starts or connects. Errors name what is not there.
  absl::Status Open(const config::v1::RunConfig& config, const SessionOptions& options);

  // Makes this process the trainer's driver until the session ends, and has the rollouts checked
  // for that trainer's weights. Errors name who drives it. A command that only reads does without.
  struct DriveOptions {
    std::string run_id;
    std::string run_dir;
    bool resumes = false;    // waits for an earlier process of the run to be over
    bool take_over = false;  // see LeaseOptions
    std::function<void(const std::string&)> note;
  };
  absl::Status Drive(DriveOptions options);

  driver::TrainerClient& trainer() { return *trainer_; }
  driver::RolloutFleet& fleet() { return *fleet_; }
  driver::RolloutFleet* fleet_or_null() { return fleet_.get(); }
  bool interrupted() { return interrupted_ || termination_.received() != 0; }

  // Keeps what the processes that are started here need, until they have ended: the lock of the
  // folder that they write into.
  void Keep(std::shared_ptr<const void> kept) { kept_ = std::move(kept); }

  // Ends the processes that were started here, in order. Nothing can be asked of them afterwards.
  void StopProcesses();

  // The outcome as the user should see it: CANCELLED after an interrupt, otherwise with the process
  // that ended as its cause.
  absl::Status Explain(absl::Status status);

 private:
  // Lets go of the trainer and, as long as this process is its driver, of the rollouts.
  void EndRun();

  std::shared_ptr<const void> kept_;
  std::atomic<bool> interrupted_{false};
  std::unique_ptr<driver::LocalCluster> cluster_;
  std::unique_ptr<driver::EndpointList> endpoints_;
  std::unique_ptr<driver::TrainerClient> trainer_;
  std::unique_ptr<driver::RolloutFleet> fleet_;
  // Destroyed first: its callback uses the rest.
  rpc::TerminationSignal termination_;
};

// A folder under the system's temporary folder, removed at destruction: the run_dir of commands
// that leave nothing behind.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_SESSION_H_
