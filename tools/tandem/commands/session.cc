#include "tools/tandem/commands/session.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/driver/build_notes.h"

namespace tandem::commands {

namespace {

constexpr absl::Duration kLocalLease = absl::Hours(24);
constexpr char kAgentsListen[] = "127.0.0.1:0";

}  // namespace

Session::Session() = default;

Session::~Session() {
  EndRun();
  // A generation without a waiting caller would delay the processes' drain.
  if (fleet_ != nullptr && interrupted_) fleet_->AbortAll();
}

absl::Status Session::Open(const config::v1::RunConfig& config, const SessionOptions& options) {
  driver::RolloutFleet::Options fleet_options;
  fleet_options.request_timeout = absl::Seconds(config.rollout().request_timeout_s());
  fleet_options.replicas_may_change = options.replicas_may_change;
  fleet_options.note = options.note;
  std::string trainer_address = config.trainer().endpoint();
  std::vector<driver::RolloutFleet::Replica> replicas;
  if (options.local) {
    driver::LocalClusterOptions cluster_options;
    cluster_options.with_trainer = options.needs_trainer;
    cluster_options.with_rollouts = options.needs_rollouts;
    cluster_options.rollout_model = options.rollout_model;
    cluster_options.interrupted = [this] { return termination_.received() != 0; };
    cluster_options.restart_rollouts = options.replicas_may_change;
    cluster_options.note = options.note;
    cluster_options.metrics = options.metrics;
    cluster_options.openai_listen = options.openai_listen;
    // Agents call the rollouts there.
    if (options.openai_listen.empty() &&
        config.environment().name() == config::v1::ENVIRONMENT_NAME_AGENT) {
      cluster_options.openai_listen = kAgentsListen;
    }
    cluster_options.replica_ranks = options.replica_ranks;
    cluster_options.trace = options.trace;
    cluster_options.served_folders = options.served_folders;
    ASSIGN_OR_RETURN(cluster_, driver::LocalCluster::Start(config, cluster_options));
    trainer_address = cluster_->trainer_address();
    replicas = cluster_->replicas();
    fleet_options.members = [this] { return cluster_->RestartEnded(); };
  } else {
    if (!options.served_folders.empty()) {
      const driver::ServedFolder& folder = options.served_folders.front();
      return Misuse(absl::InvalidArgumentError(
          absl::StrCat(folder.key, ".endpoint: expected HOST:PORT of a rollout that serves ",
                       folder.path, " (tandem-rollout --model), or --local to serve it here")));
    }
    if (options.needs_trainer && trainer_address.empty()) {
      return Misuse(absl::InvalidArgumentError(
          "no trainer: give trainer.endpoint (HOST:PORT), or --local to start one here"));
    }
    if (options.needs_rollouts) {
      auto endpoints = driver::EndpointList::Open(config.rollout(), options.note);
      if (!endpoints.ok()) return Misuse(endpoints.status());
      endpoints_ = std::make_unique<driver::EndpointList>(*std::move(endpoints));
      replicas = endpoints_->Current();
      fleet_options.members = [this] { return endpoints_->Current(); };
      if (replicas.empty()) {
        return Misuse(absl::InvalidArgumentError(
            "no rollouts: give rollout.endpoints (HOST:PORT, ...) or rollout.endpoints_file, or "
            "--local to start them here"));
      }
    }
    if (options.needs_trainer) {
      RETURN_IF_ERROR(
          rpc::WaitUntilHealthy(rpc::MakeChannel(trainer_address), "", absl::Seconds(60)))
          << "trainer at " << trainer_address;
    }
    for (const auto& replica : replicas) {
      if (options.replicas_may_change) break;  // replicas that do not respond yet may join later
      RETURN_IF_ERROR(
          rpc::WaitUntilHealthy(rpc::MakeChannel(replica.address), "", absl::Seconds(60)))
          << replica.id << " at " << replica.address;
    }
  }
  if (options.needs_trainer) {
    trainer_ =
        std::make_unique<driver::TrainerClient>(trainer_address, fleet_options.request_timeout,
                                                absl::Seconds(config.trainer().update_timeout_s()));
  }
  if (options.needs_rollouts) {
    fleet_ = std::make_unique<driver::RolloutFleet>(std::move(replicas), std::move(fleet_options));
  }
  termination_.OnSignal([this] {
    interrupted_ = true;
    // Generation ends with what it has; a training step is let finish.
    if (fleet_ != nullptr) fleet_->AbortAll();
  });
  return absl::OkStatus();
}

absl::Status Session::Drive(DriveOptions options) {
  driver::LeaseOptions lease;
  // Our own processes end with us.
  const std::string held_for = cluster_ == nullptr ? options.run_id : "";
  lease.run_id = std::move(options.run_id);
  lease.run_dir = std::move(options.run_dir);
  lease.waits_for_own_run = options.resumes;
  lease.take_over = options.take_over;
  // Local processes end with this one, so the lease need not detect its end; and Ctrl-Z, which
  // stops them all, must not expire it.
  if (cluster_ != nullptr) lease.duration = kLocalLease;
  lease.note = options.note;
  lease.interrupted = [this] { return interrupted(); };
  lease.on_heartbeat = [fleet = fleet_.get()] {
    if (fleet != nullptr) fleet->SendHeartbeats();
  };
  RETURN_IF_ERROR(trainer_->AcquireLease(std::move(lease)));
  if (fleet_ != nullptr) fleet_->SetTrainer(trainer_->incarnation(), held_for);
  if (cluster_ == nullptr) driver::NoteOtherBuilds(*trainer_, fleet_.get(), options.note);
  return absl::OkStatus();
}

void Session::EndRun() {
  if (trainer_ == nullptr) return;
  // Before the fleet ends, which the lease's heartbeats use.
  trainer_->ReleaseLease([this] {
    if (fleet_ != nullptr) fleet_->EndRun();
  });
}

void Session::StopProcesses() {
  EndRun();
  fleet_.reset();
  trainer_.reset();
  if (cluster_ != nullptr) cluster_->Stop();
}

absl::Status Session::Explain(absl::Status status) {
  if (interrupted_ || termination_.received() != 0) return absl::CancelledError("interrupted");
  // A service that stops ends its calls with CANCELLED, which is the user's word here.
  if (absl::IsCancelled(status)) {
    status = absl::UnavailableError(absl::StrCat("a service ended the call: ", status.message()));
  }
  if (cluster_ != nullptr) status = cluster_->Explain(status);
  if (!status.ok()) absl::StrAppend(&shown_, status.message(), "\n");
  return status;
}

ScratchFolder::ScratchFolder(const Session* session) : session_(session) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tandem-XXXXXX").string();
  // An empty path would be the working folder. main() reports it, as what temp_directory_path()
  // throws.
  if (mkdtemp(pattern.data()) == nullptr) {
    throw std::filesystem::filesystem_error("cannot create a temporary folder", pattern,
                                            std::error_code(errno, std::generic_category()));
  }
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  if (session_ != nullptr && session_->HasCited(path_)) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tandem::commands
