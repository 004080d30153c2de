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

// Between the end of a rollout and its new start; doubles where it does not come up.
constexpr absl::Duration kFirstRestart = absl::Milliseconds(500);
constexpr absl::Duration kLongestRestart = absl::Seconds(30);

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
  member.start = options;
  ASSIGN_OR_RETURN(member.process, rpc::ChildProcess::Start(std::move(options)));
  return member;
}

absl::Status LocalCluster::AwaitReady(Member& member, const std::string& health_name,
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
      absl::MutexLock lock(&mu_);
      member.address = *std::move(address);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(AllRun(absl::ZeroDuration(), /*with_rollouts=*/true));
    if (options_.interrupted && options_.interrupted()) return absl::CancelledError("interrupted");
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

  auto cluster = std::unique_ptr<LocalCluster>(new LocalCluster(options));
  const std::string bin = BinaryFolder();
  const absl::Time deadline = absl::Now() + options.start_timeout;
  // All of them before the first is given to the cluster, which then stay where they are.
  std::vector<Member> members;
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
      members.push_back(std::move(member));
    }
  }
  const size_t first_rollout = members.size();
  if (options.with_rollouts) {
    for (int64_t replica = 0; replica < config.rollout().replicas(); ++replica) {
      std::vector<std::string> argv = {bin + "/tandem-rollout", "--config", config_path, "--set",
                                       absl::StrCat("rollout.threads=", RolloutThreads(config))};
      if (!options.rollout_model.empty()) {
        argv.insert(argv.end(), {"--model", options.rollout_model});
      }
      ASSIGN_OR_RETURN(Member member, cluster->Spawn(absl::StrCat("rollout-", replica),
                                                     std::move(argv), {}, run_dir));
      member.is_rollout = true;
      members.push_back(std::move(member));
    }
  }
  std::vector<Member*> all;
  {
    absl::MutexLock lock(&cluster->mu_);
    cluster->members_ = std::move(members);
    for (Member& member : cluster->members_) all.push_back(&member);
  }
  if (options.with_trainer) {
    RETURN_IF_ERROR(cluster->AwaitReady(*all[0], "", deadline));
    cluster->trainer_address_ = all[0]->address;
  }
  // A rollout that waits for a trainer is ready to receive; one with a folder of its own serves it.
  const std::string health_name = options.rollout_model.empty()
                                      ? "tandem.rollout.v1.WeightService"
                                      : "tandem.rollout.v1.RolloutService";
  for (size_t i = first_rollout; i < all.size(); ++i) {
    RETURN_IF_ERROR(cluster->AwaitReady(*all[i], health_name, deadline));
  }
  return cluster;
}

std::vector<RolloutFleet::Replica> LocalCluster::Up() const {
  std::vector<RolloutFleet::Replica> out;
  for (const Member& member : members_) {
    if (member.is_rollout && !member.address.empty()) {
      out.push_back({member.process->name(), member.address});
    }
  }
  return out;
}

std::vector<RolloutFleet::Replica> LocalCluster::replicas() const {
  absl::MutexLock lock(&mu_);
  return Up();
}

std::vector<RolloutFleet::Replica> LocalCluster::Tend() {
  absl::MutexLock lock(&mu_);
  for (Member& member : members_) {
    if (member.is_rollout && options_.restart_rollouts && !is_stopping_) TendTo(member);
  }
  return Up();
}

void LocalCluster::TendTo(Member& rollout) {
  const absl::Time now = absl::Now();
  if (rollout.process->running()) {
    if (!rollout.address.empty()) return;
    absl::StatusOr<std::string> address =
        rpc::WaitForReadyFile(rollout.ready_path, *rollout.process, absl::ZeroDuration());
    if (address.ok()) rollout.address = *std::move(address);
    return;
  }
  const auto note = [this](const std::string& text) {
    if (options_.note) options_.note(text);
  };
  if (rollout.start_again == absl::InfiniteFuture()) {
    // One that never came up most likely will not the next time either.
    rollout.pause = rollout.address.empty()
                        ? std::clamp(rollout.pause * 2, kFirstRestart, kLongestRestart)
                        : kFirstRestart;
    rollout.start_again = now + rollout.pause;
    rollout.address.clear();
    note(absl::StrCat(rollout.process->name(), " ", rollout.process->ExitDescription(),
                      " and is started again in ", absl::FormatDuration(rollout.pause),
                      "; its log, ", rollout.log_path, ", ends with\n    ",
                      LastLines(rollout.log_path, 2)));
  }
  if (now < rollout.start_again) return;
  std::error_code ignored;
  std::filesystem::remove(rollout.ready_path, ignored);
  auto process = rpc::ChildProcess::Start(rollout.start);
  rollout.start_again = absl::InfiniteFuture();
  if (process.ok()) {
    rollout.process = *std::move(process);
  } else {
    note(absl::StrCat(rollout.process->name(), " cannot be started: ", process.status().message()));
  }
}

absl::Status LocalCluster::Health(absl::Duration settle) {
  return AllRun(settle, /*with_rollouts=*/!options_.restart_rollouts);
}

absl::Status LocalCluster::AllRun(absl::Duration settle, bool with_rollouts) {
  // When one process is lost the others soon end too: all that ended are named, those that a signal
  // ended first, for they are the cause.
  const absl::Time deadline = absl::Now() + settle;
  std::vector<std::string> killed, exited;
  do {
    killed.clear();
    exited.clear();
    {
      absl::MutexLock lock(&mu_);
      for (Member& member : members_) {
        if (member.is_rollout && !with_rollouts) continue;
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
    }
    if (settle > absl::ZeroDuration()) absl::SleepFor(std::min(settle, absl::Milliseconds(50)));
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
  absl::MutexLock lock(&mu_);
  is_stopping_ = true;
  for (Member& member : members_) member.process->Terminate();
  const absl::Time deadline = absl::Now() + grace;
  for (Member& member : members_) {
    member.process->Stop(std::max(absl::ZeroDuration(), deadline - absl::Now()));
  }
}

LocalCluster::~LocalCluster() { Stop(); }

}  // namespace tandem::driver
