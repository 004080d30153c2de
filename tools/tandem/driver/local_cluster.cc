#include "tools/tandem/driver/local_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/to_yaml.h"
#include "common/host/control_group.h"
#include "common/host/cpu_list.h"
#include "common/host/gpus.h"
#include "common/io/atomic_file.h"
#include "common/net/host_port.h"
#include "common/net/reserved_port.h"
#include "common/rpc/channel.h"
#include "common/rpc/process.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/gpu_placement.h"

namespace tandem::driver {
namespace {

// Pause before a rollout that ended is restarted; doubles each time it does not come up.
constexpr absl::Duration kFirstRestart = absl::Milliseconds(500);
constexpr absl::Duration kLongestRestart = absl::Seconds(30);
constexpr absl::Duration kFailureTime = absl::Seconds(6);

std::string LastLines(const std::string& path, size_t count) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > count) lines.pop_front();
  }
  return absl::StrJoin(lines, "\n    ");
}

// Returns HOST:PORT with the port increased by `offset`. Port 0, a free one, stays 0.
absl::StatusOr<std::string> NextPort(absl::string_view option, const std::string& address,
                                     int offset) {
  absl::StatusOr<net::HostPort> next = net::ParseListenAddress(address);
  RETURN_IF_ERROR(next.status()) << option;
  if (next->port == 0) return address;
  if (next->port + offset > net::kMaxPort) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": expected HOST:PORT with ", offset,
                                                   " ports above it, found ", address));
  }
  next->port += offset;
  return next->ToString();
}

}  // namespace

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
  if (!options_.metrics.empty()) {
    ASSIGN_OR_RETURN(std::string metrics, NextPort("metrics", options_.metrics, ++num_spawned_));
    argv.insert(argv.end(), {"--metrics", std::move(metrics)});
  }
  if (options_.trace) {
    argv.insert(argv.end(), {"--trace", absl::StrCat(run_dir, "/logs/", name, ".trace.json")});
  }
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
  // In slices, so that the end of another process is noticed soon.
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
    RETURN_IF_ERROR(AllRun(absl::ZeroDuration(), /*with_rollouts=*/true, /*with_served=*/true));
    if (options_.interrupted && options_.interrupted()) return absl::CancelledError("interrupted");
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(member.process->name(), " did not come up in time; its log, ",
                       member.log_path, ", ends with\n    ", LastLines(member.log_path, 5)));
    }
  }
}

namespace {

// Number of ranks of each replica.
std::vector<int64_t> ReplicaRanks(const config::v1::RunConfig& config,
                                  const LocalClusterOptions& options) {
  if (!options.replica_ranks.empty()) return options.replica_ranks;
  return std::vector<int64_t>(config.rollout().replicas(),
                              config.rollout().tensor_model_parallel_size());
}

// Threads of one rank, if `all_ranks` ranks share this machine.
int64_t RolloutThreads(const config::v1::RunConfig& config, int64_t all_ranks) {
  if (config.rollout().threads() > 0) return config.rollout().threads();
  return std::max<int64_t>(1, host::UsableCores() / std::max<int64_t>(1, all_ranks));
}

// With rollout.cpus auto: the CPUs of ranks [begin, begin + ranks) of `all` ranks. Empty if there
// are fewer CPUs than ranks.
std::string RolloutCpus(const config::v1::RunConfig& config, int64_t begin, int64_t ranks,
                        int64_t all) {
  if (config.rollout().cpus() != "auto") return config.rollout().cpus();
  return host::FormatCpuList(host::ShareOfCpus(host::AllowedCpus(), begin, begin + ranks, all));
}

GpuRequest GpuRequestOf(const config::v1::RunConfig& config, const LocalClusterOptions& options) {
  GpuRequest request;
  request.trainer_device = config.trainer().device();
  request.rollout_device = config.rollout().device();
  if (options.with_trainer) request.trainer_ranks = config.trainer().ranks();
  if (options.with_rollouts) request.replica_ranks = ReplicaRanks(config, options);
  request.replica_ranks.insert(request.replica_ranks.end(), options.served_folders.size(), 1);
  return request;
}

void AppendTo(std::vector<std::pair<std::string, std::string>> more,
              std::vector<std::pair<std::string, std::string>>& environment) {
  std::move(more.begin(), more.end(), std::back_inserter(environment));
}

std::string NewGroupSecret() { return absl::BytesToHexString(security::DrawSecret()); }

// The environment of rank `rank` of `size`: its place, and the secret of its group.
std::vector<std::pair<std::string, std::string>> RankEnvironment(int64_t rank, int64_t size,
                                                                 int port,
                                                                 const std::string& secret) {
  return {{"RANK", absl::StrCat(rank)},       {"LOCAL_RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(size)}, {"LOCAL_WORLD_SIZE", absl::StrCat(size)},
          {"MASTER_ADDR", "127.0.0.1"},       {"MASTER_PORT", absl::StrCat(port)},
          {"TANDEM_GROUP_SECRET", secret}};
}

}  // namespace

absl::StatusOr<LocalCluster::Member> LocalCluster::SpawnRollout(
    size_t replica, int64_t size, const std::vector<std::string>& gpus, const std::string& run_dir,
    std::vector<std::string> argv) {
  const std::string name = absl::StrCat("rollout-", replica);
  argv.insert(argv.end(), {"--set", absl::StrCat("rollout.tensor_model_parallel_size=", size)});
  if (size == 1) argv.insert(argv.end(), {"--set", "rollout.enable_expert_parallel=false"});
  std::vector<Member> ranks;
  int port = 0;
  if (size > 1) {
    ASSIGN_OR_RETURN(port, net::ReservePort());
  }
  const std::string secret = NewGroupSecret();
  for (int64_t rank = 0; rank < size; ++rank) {
    std::vector<std::pair<std::string, std::string>> environment;
    if (size > 1) environment = RankEnvironment(rank, size, port, secret);
    if (!gpus.empty()) AppendTo(GpuEnvironment(gpus[rank]), environment);
    ASSIGN_OR_RETURN(Member member, Spawn(rank == 0 ? name : absl::StrCat(name, "-rank-", rank),
                                          argv, environment, run_dir));
    ranks.push_back(std::move(member));
  }
  Member out = std::move(ranks.front());
  out.is_rollout = true;
  out.followers.assign(std::make_move_iterator(ranks.begin() + 1),
                       std::make_move_iterator(ranks.end()));
  return out;
}

absl::StatusOr<std::vector<LocalCluster::Member>> LocalCluster::SpawnServed(
    int64_t threads, absl::Span<const std::vector<std::string>> gpus, const std::string& run_dir,
    const std::string& config_path) {
  std::vector<Member> members;
  for (const ServedFolder& folder : options_.served_folders) {
    std::vector<std::pair<std::string, std::string>> environment;
    if (!gpus.empty()) AppendTo(GpuEnvironment(gpus[members.size()][0]), environment);
    // The lengths that fit the policy need not fit another model's text.
    ASSIGN_OR_RETURN(
        Member member,
        Spawn(folder.name,
              {BinaryFolder() + "/tandem-rollout", "--config", config_path, "--model", folder.path,
               "--set", "rollout.tensor_model_parallel_size=1", "--set",
               "rollout.enable_expert_parallel=false", "--set", "rollout.max_model_len=0", "--set",
               "rollout.cpus=\"\"", "--set", absl::StrCat("rollout.threads=", threads)},
              std::move(environment), run_dir));
    member.is_served = true;
    members.push_back(std::move(member));
  }
  return members;
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const config::v1::RunConfig& config, const LocalClusterOptions& options) {
  const std::string& run_dir = config.run_dir();
  std::error_code error;
  std::filesystem::create_directories(run_dir + "/logs", error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot create the folder ", run_dir, "/logs: ", error.message()));
  }
  const std::string config_path = absl::StrCat(run_dir, "/logs/config.yaml");
  RETURN_IF_ERROR(io::WriteFileAtomically(config_path, config::ToYaml(config)));

  ASSIGN_OR_RETURN(const GpuPlacement gpus,
                   PlaceOnGpus(GpuRequestOf(config, options), host::ReadGpuFacts()));
  auto cluster = std::unique_ptr<LocalCluster>(new LocalCluster(options));
  const std::string bin = BinaryFolder();
  const absl::Time deadline = absl::Now() + options.start_timeout;
  // Moved into the cluster together: pointers to members must stay valid.
  std::vector<Member> members;
  if (options.with_trainer) {
    ASSIGN_OR_RETURN(const int port, net::ReservePort());
    const std::string secret = NewGroupSecret();
    for (int64_t rank = 0; rank < config.trainer().ranks(); ++rank) {
      auto environment = RankEnvironment(rank, config.trainer().ranks(), port, secret);
      if (!gpus.trainer.empty()) AppendTo(GpuEnvironment(gpus.trainer[rank]), environment);
      ASSIGN_OR_RETURN(Member member,
                       cluster->Spawn(absl::StrCat("trainer-", rank),
                                      {bin + "/tandem-trainer", "--config", config_path},
                                      std::move(environment), run_dir));
      members.push_back(std::move(member));
    }
  }
  const size_t first_rollout = members.size();
  const auto num_served = static_cast<int64_t>(options.served_folders.size());
  size_t num_replicas = 0;
  int64_t all_ranks = num_served;
  if (options.with_rollouts) {
    const std::vector<int64_t> replica_ranks = ReplicaRanks(config, options);
    num_replicas = replica_ranks.size();
    all_ranks = std::accumulate(replica_ranks.begin(), replica_ranks.end(), num_served);
    int64_t first_rank = 0;
    for (size_t replica = 0; replica < replica_ranks.size(); ++replica) {
      const std::string cpus = RolloutCpus(config, first_rank, replica_ranks[replica], all_ranks);
      first_rank += replica_ranks[replica];
      std::vector<std::string> argv = {
          bin + "/tandem-rollout",
          "--config",
          config_path,
          "--set",
          absl::StrCat("rollout.threads=", RolloutThreads(config, all_ranks)),
          "--set",
          absl::StrCat("rollout.cpus=\"", cpus, "\"")};
      if (!options.rollout_model.empty()) {
        argv.insert(argv.end(), {"--model", options.rollout_model});
      }
      if (!options.openai_listen.empty()) {
        ASSIGN_OR_RETURN(std::string listen, NextPort("openai-listen", options.openai_listen,
                                                      static_cast<int>(replica)));
        argv.insert(argv.end(), {"--openai-listen", std::move(listen)});
      }
      ASSIGN_OR_RETURN(Member member,
                       cluster->SpawnRollout(replica, replica_ranks[replica],
                                             gpus.replicas.empty() ? std::vector<std::string>()
                                                                   : gpus.replicas[replica],
                                             run_dir, argv));
      members.push_back(std::move(member));
    }
  }
  const size_t first_served = members.size();
  auto gpus_of_served = absl::MakeConstSpan(gpus.replicas);
  if (!gpus_of_served.empty()) gpus_of_served.remove_prefix(num_replicas);
  ASSIGN_OR_RETURN(std::vector<Member> served,
                   cluster->SpawnServed(RolloutThreads(config, all_ranks), gpus_of_served, run_dir,
                                        config_path));
  std::move(served.begin(), served.end(), std::back_inserter(members));
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
  // A rollout that waits for a trainer is healthy once it can receive weights; one with its own
  // model folder, once it serves.
  const std::string health_name = options.rollout_model.empty()
                                      ? "tandem.rollout.v1.WeightService"
                                      : "tandem.rollout.v1.RolloutService";
  for (size_t i = first_rollout; i < all.size(); ++i) {
    RETURN_IF_ERROR(cluster->AwaitReady(
        *all[i], i < first_served ? health_name : "tandem.rollout.v1.RolloutService", deadline));
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

std::string LocalCluster::AddressOf(const std::string& served_name) {
  absl::MutexLock lock(&mu_);
  for (Member& member : members_) {
    if (!member.is_served || member.process->name() != served_name) continue;
    if (!is_stopping_) RestartIfEnded(member);
    return member.address;
  }
  return "";
}

std::vector<RolloutFleet::Replica> LocalCluster::replicas() const {
  absl::MutexLock lock(&mu_);
  return Up();
}

std::vector<RolloutFleet::Replica> LocalCluster::RestartEnded() {
  absl::MutexLock lock(&mu_);
  for (Member& member : members_) {
    if (member.is_rollout && options_.restart_rollouts && !is_stopping_) RestartIfEnded(member);
  }
  return Up();
}

void LocalCluster::RestartIfEnded(Member& rollout) {
  const absl::Time now = absl::Now();
  bool all_run = rollout.process->running();
  for (Member& rank : rollout.followers) all_run = all_run && rank.process->running();
  if (all_run) {
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
    // If it never came up, a quick retry is unlikely to help.
    rollout.pause = rollout.address.empty()
                        ? std::clamp(rollout.pause * 2, kFirstRestart, kLongestRestart)
                        : kFirstRestart;
    // The other ranks first report the lost rank to their callers, then end.
    if (!rollout.followers.empty()) rollout.pause = std::max(rollout.pause, kFailureTime);
    rollout.start_again = now + rollout.pause;
    rollout.address.clear();
    const Member* ended = &rollout;
    for (Member& rank : rollout.followers) {
      if (ended->process->running() && !rank.process->running()) ended = &rank;
    }
    note(absl::StrCat(ended->process->name(), " ", ended->process->ExitDescription(), " and ",
                      rollout.process->name(), " restarts in ", absl::FormatDuration(rollout.pause),
                      "; its log, ", ended->log_path, ", ends with\n    ",
                      LastLines(ended->log_path, 2)));
  }
  if (now < rollout.start_again) return;
  rollout.start_again = absl::InfiniteFuture();
  // The ranks end by themselves when one is lost; a rank that is still there is suspended or hangs.
  std::vector<Member*> ranks = {&rollout};
  for (Member& rank : rollout.followers) ranks.push_back(&rank);
  for (Member* rank : ranks) rank->process->Stop(absl::ZeroDuration());
  const absl::StatusOr<int> port = ranks.size() > 1 ? net::ReservePort() : 0;
  for (Member* rank : ranks) {
    std::error_code ignored;
    std::filesystem::remove(rank->ready_path, ignored);
    if (ranks.size() > 1 && port.ok()) {
      rank->start.environment["MASTER_PORT"] = absl::StrCat(*port);
    }
    auto process = port.ok() ? rpc::ChildProcess::Start(rank->start) : port.status();
    if (!process.ok()) {
      note(absl::StrCat(rank->process->name(), " cannot be started: ", process.status().message()));
      continue;
    }
    rank->process = *std::move(process);
  }
}

absl::Status LocalCluster::Health(absl::Duration settle) {
  return AllRun(settle, /*with_rollouts=*/!options_.restart_rollouts, /*with_served=*/false);
}

absl::Status LocalCluster::AllRun(absl::Duration settle, bool with_rollouts, bool with_served) {
  // The loss of one process soon ends others. Name all that ended, those killed by a signal first,
  // because they are the likely cause.
  const absl::Time deadline = absl::Now() + settle;
  std::vector<std::string> killed, exited;
  do {
    killed.clear();
    exited.clear();
    {
      absl::MutexLock lock(&mu_);
      std::vector<Member*> processes;
      for (Member& member : members_) {
        if ((member.is_rollout && !with_rollouts) || (member.is_served && !with_served)) continue;
        processes.push_back(&member);
        for (Member& rank : member.followers) processes.push_back(&rank);
      }
      for (Member* process : processes) {
        Member& member = *process;
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
  std::vector<Member*> processes;
  for (Member& member : members_) {
    processes.push_back(&member);
    for (Member& rank : member.followers) processes.push_back(&rank);
  }
  for (Member* member : processes) member->process->Terminate();
  const absl::Time deadline = absl::Now() + grace;
  for (Member* member : processes) {
    // No second SIGTERM: it would end a service at once, without its shutdown.
    if (member->process->Wait(std::max(absl::ZeroDuration(), deadline - absl::Now()))) continue;
    member->process->Kill();
    member->process->Wait(absl::InfiniteDuration());
  }
}

LocalCluster::~LocalCluster() { Stop(); }

}  // namespace tandem::driver
