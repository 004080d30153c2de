#include "tools/tandem/driver/local_cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/to_yaml.h"
#include "common/io/atomic_file.h"
#include "common/rpc/channel.h"
#include "common/rpc/process.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

std::string LastLines(const std::string& path, size_t count) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > count) lines.pop_front();
  }
  return absl::StrJoin(lines, "\n    ");
}

}  // namespace

absl::StatusOr<int> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int saved_errno = errno;
  close(fd);
  if (!bound) return absl::ErrnoToStatus(saved_errno, "no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

std::string BinaryFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

absl::StatusOr<LocalCluster::Member> LocalCluster::Spawn(
    const std::string& name, std::vector<std::string> argv,
    std::vector<std::pair<std::string, std::string>> environment, const std::string& run_dir) {
  Member member;
  member.log_path = absl::StrCat(run_dir, "/logs/", name, ".log");
  member.ready_path = absl::StrCat(run_dir, "/logs/", name, ".ready");
  std::error_code ignored;
  std::filesystem::remove(member.ready_path, ignored);
  argv.insert(argv.end(),
              {"--listen", "127.0.0.1:0", "--ready-file", member.ready_path, "--die-with-parent"});
  rpc::ChildProcessOptions options;
  options.name = name;
  options.argv = std::move(argv);
  options.environment.insert(environment.begin(), environment.end());
  options.log_path = member.log_path;
  ASSIGN_OR_RETURN(member.process, rpc::ChildProcess::Start(std::move(options)));
  return member;
}

absl::StatusOr<std::string> LocalCluster::AwaitReady(Member& member, const std::string& health_name,
                                                     const LocalClusterOptions& options,
                                                     absl::Time deadline) {
  // In slices, so that another member's end is seen at once.
  while (true) {
    const absl::Duration slice =
        std::min<absl::Duration>(absl::Milliseconds(500), deadline - absl::Now());
    absl::StatusOr<std::string> address =
        rpc::WaitForReadyFile(member.ready_path, *member.process, slice);
    if (address.ok()) {
      RETURN_IF_ERROR(
          rpc::WaitUntilHealthy(rpc::MakeChannel(*address), health_name, deadline - absl::Now()))
          << member.process->name() << " at " << *address << " did not become healthy";
      return address;
    }
    RETURN_IF_ERROR(Health());
    if (options.interrupted && options.interrupted()) return absl::CancelledError("interrupted");
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(member.process->name(), " did not come up in time; its log, ",
                       member.log_path, ", ends with\n    ", LastLines(member.log_path, 5)));
    }
  }
}

namespace {

int64_t RolloutThreads(const config::v1::RunConfig& config) {
  if (config.rollout().threads() > 0) return config.rollout().threads();
  const int64_t cores = std::thread::hardware_concurrency();
  return std::max<int64_t>(1, cores / config.rollout().replicas());
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const config::v1::RunConfig& config, const LocalClusterOptions& options) {
  const std::string& run_dir = config.run_dir();
  std::error_code error;
  std::filesystem::create_directories(run_dir + "/logs", error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("can't make the folder ", run_dir, "/logs: ", error.message()));
  }
  const std::string config_path = run_dir + "/config.yaml";
  RETURN_IF_ERROR(io::WriteFileAtomically(config_path, config::ToYaml(config)));

  auto cluster = std::unique_ptr<LocalCluster>(new LocalCluster());
  const std::string bin = BinaryFolder();
  const absl::Time deadline = absl::Now() + options.start_timeout;
  if (options.with_trainer) {
    ASSIGN_OR_RETURN(const int port, FreePort());
    for (int64_t rank = 0; rank < config.trainer().ranks(); ++rank) {
      ASSIGN_OR_RETURN(Member member,
                       cluster->Spawn(absl::StrCat("trainer-", rank),
                                      {bin + "/tandem-trainer", "--config", config_path},
                                      {{"RANK", absl::StrCat(rank)},
                                       {"LOCAL_RANK", absl::StrCat(rank)},
                                       {"WORLD_SIZE", absl::StrCat(config.trainer().ranks())},
                                       {"LOCAL_WORLD_SIZE", absl::StrCat(config.trainer().ranks())},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", absl::StrCat(port)}},
                                      run_dir));
      cluster->members_.push_back(std::move(member));
    }
  }
  const size_t first_rollout = cluster->members_.size();
  if (options.with_rollouts) {
    for (int64_t replica = 0; replica < config.rollout().replicas(); ++replica) {
      std::vector<std::string> argv = {bin + "/tandem-rollout", "--config", config_path, "--set",
                                       absl::StrCat("rollout.threads=", RolloutThreads(config))};
      if (!options.rollout_model.empty()) {
        argv.insert(argv.end(), {"--model", options.rollout_model});
      }
      ASSIGN_OR_RETURN(Member member, cluster->Spawn(absl::StrCat("rollout-", replica),
                                                     std::move(argv), {}, run_dir));
      cluster->members_.push_back(std::move(member));
    }
  }
  if (options.with_trainer) {
    ASSIGN_OR_RETURN(cluster->trainer_address_,
                     cluster->AwaitReady(cluster->members_[0], "", options, deadline));
  }
  // A rollout that waits for a trainer is ready to receive; one with a folder of its own serves it.
  const std::string health_name = options.rollout_model.empty()
                                      ? "tandem.rollout.v1.WeightService"
                                      : "tandem.rollout.v1.RolloutService";
  for (size_t i = first_rollout; i < cluster->members_.size(); ++i) {
    ASSIGN_OR_RETURN(std::string address,
                     cluster->AwaitReady(cluster->members_[i], health_name, options, deadline));
    cluster->replicas_.push_back({cluster->members_[i].process->name(), std::move(address)});
  }
  return cluster;
}

absl::Status LocalCluster::Health(absl::Duration settle) {
  // When one process is lost the others soon end too: all that ended are named, those that a signal
  // ended first, for they are the cause.
  const absl::Time deadline = absl::Now() + settle;
  std::vector<std::string> killed, exited;
  do {
    killed.clear();
    exited.clear();
    for (Member& member : members_) {
      if (!member.process->Wait(absl::ZeroDuration())) continue;
      const std::string how = member.process->ExitDescription();
      std::string text = absl::StrCat(member.process->name(), " ", how);
      if (absl::StrContains(how, "killed")) {
        killed.push_back(std::move(text));
      } else {
        exited.push_back(absl::StrCat(text, "; its log, ", member.log_path, ", ends with\n    ",
                                      LastLines(member.log_path, 5)));
      }
    }
    if (settle > absl::ZeroDuration() && !members_.empty()) {
      members_[0].process->Wait(std::min(settle, absl::Milliseconds(50)));
    }
  } while (killed.empty() && absl::Now() < deadline);
  killed.insert(killed.end(), exited.begin(), exited.end());
  return killed.empty() ? absl::OkStatus() : absl::UnavailableError(absl::StrJoin(killed, "\n  "));
}

absl::Status LocalCluster::Explain(const absl::Status& status) {
  if (status.ok() || absl::IsInvalidArgument(status)) return status;
  const absl::Status health = Health(absl::Milliseconds(500));
  if (health.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "\n  ", health.message()));
}

void LocalCluster::Stop(absl::Duration grace) {
  for (Member& member : members_) member.process->Terminate();
  const absl::Time deadline = absl::Now() + grace;
  for (Member& member : members_) {
    member.process->Stop(std::max(absl::ZeroDuration(), deadline - absl::Now()));
  }
}

LocalCluster::~LocalCluster() { Stop(); }

}  // namespace tandem::driver
