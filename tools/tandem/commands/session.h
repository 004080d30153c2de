// Session: connects a command to its services, started here or already running, and handles the
// interrupt that ends it.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_SESSION_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_SESSION_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/termination_signal.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/endpoint_list.h"
#include "tools/tandem/driver/local_cluster.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/served_folder.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::commands {

struct SessionOptions {
  bool local = false;  // start processes; otherwise connect to the configuration's endpoints
  bool needs_trainer = true;
  bool needs_rollouts = true;
  std::string rollout_model;  // see LocalClusterOptions
  // trainer.update_policy=available: replicas join and leave. Otherwise those of the start stay.
  bool replicas_may_change = false;
  std::string metrics;                 // see LocalClusterOptions
  std::string openai_listen;           // likewise
  std::vector<int64_t> replica_ranks;  // likewise
  bool trace = false;                  // likewise
  // Served here with `local`; otherwise an error, which names the key.
  std::vector<driver::ServedFolder> served_folders;
  // Receives a line for each replica that joins or leaves, from any thread.
  std::function<void(const std::string&)> note;
};

// Create it first in a command, before any thread starts. Used by the command's thread.
class Session {
 public:
  Session();
  ~Session();

  // Starts the services or connects to them. Errors name the missing service.
  absl::Status Open(const config::v1::RunConfig& config, const SessionOptions& options);

  // Makes this process the trainer's driver until the session ends, and accepts only rollouts with
  // that trainer's weights. Errors name the current driver. Read-only commands skip it.
  struct DriveOptions {
    std::string run_id;
    std::string run_dir;
    bool resumes = false;    // waits for an earlier process of the run to end
    bool take_over = false;  // see LeaseOptions
    std::function<void(const std::string&)> note;
  };
  absl::Status Drive(DriveOptions options);

  // Of the rollouts of SessionOptions::served_folders; must not outlive the session.
  driver::AddressOfServed address_of_served() {
    return [this](const std::string& name) { return cluster_->AddressOf(name); };
  }

  driver::TrainerClient& trainer() { return *trainer_; }
  driver::RolloutFleet& fleet() { return *fleet_; }
  driver::RolloutFleet* fleet_or_null() { return fleet_.get(); }
  bool interrupted() { return interrupted_ || termination_.received() != 0; }

  // Holds `kept` until the processes started here have ended: the lock of the folder that they
  // write into.
  void Keep(std::shared_ptr<const void> kept) { kept_ = std::move(kept); }

  // Stops the processes started here, in order. They take no calls afterwards.
  void StopProcesses();

  // Returns the status to show the user: CANCELLED after an interrupt, otherwise with the process
  // that ended as its cause.
  absl::Status Explain(absl::Status status);
  // Whether an error that Explain() returned cites a file in `folder`.
  bool HasCited(const std::string& folder) const {
    return shown_.find(folder) != std::string::npos;
  }

 private:
  // Releases the trainer and, if this process is still its driver, the rollouts.
  void EndRun();

  std::shared_ptr<const void> kept_;
  std::string shown_;  // the errors that Explain() returned
  std::atomic<bool> interrupted_{false};
  std::unique_ptr<driver::LocalCluster> cluster_;
  std::unique_ptr<driver::EndpointList> endpoints_;
  std::unique_ptr<driver::TrainerClient> trainer_;
  std::unique_ptr<driver::RolloutFleet> fleet_;
  // Destroyed first: its callback uses the rest.
  rpc::TerminationSignal termination_;
};

// A temporary folder, removed at destruction: the run_dir of commands that leave no files.
class ScratchFolder {
 public:
  // The folder stays if an error of `session`, which may be null, cites one of its files: the user
  // is going to look. `session` must outlive it.
  explicit ScratchFolder(const Session* session = nullptr);
  ~ScratchFolder();
  const std::string& path() const { return path_; }

 private:
  const Session* const session_;
  std::string path_;
};

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_SESSION_H_
