#include "tests/support/supervised_run.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/reserved_port.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tools/tandem/driver/local_cluster.h"

namespace tandem::testing {
namespace {

// Between the end of a process and its new start.
constexpr absl::Duration kBackOff = absl::Milliseconds(500);

std::string LastPart(const std::string& text) {
  return text.size() > 1500 ? "..." + text.substr(text.size() - 1500) : text;
}

}  // namespace

SupervisedRun::SupervisedRun(const SupervisedRunOptions& options) : options_(options) {
  // The network is in a namespace of the thread that makes it, and children die with theirs.
  supervisor_ = std::thread([this] { Supervise(); });
  described_.WaitForNotification();
}

std::string SupervisedRun::ListenOf(int number) const {
  return options_.own_networks ? "0.0.0.0:5000" : absl::StrCat("127.0.0.1:", ports_[number]);
}

std::string SupervisedRun::AddressOf(const std::string& name, int number) const {
  return options_.own_networks ? name + ":5000" : ListenOf(number);
}

absl::Status SupervisedRun::MakeNetwork() {
  std::string reward_listen = "127.0.0.1:0";
  if (options_.own_networks) {
    auto network =
        ContainerNetwork::Create({"trainer-0", "trainer-1", "rollout-0", "rollout-1", "driver"});
    if (!network.ok()) return network.status();
    network_ = *std::move(network);
    reward_listen = absl::StrCat(ContainerNetwork::kBridgeAddress, ":0");
  }
  reward_ = std::make_unique<GatedReward>(absl::Milliseconds(300), reward_listen);
  return absl::OkStatus();
}

void SupervisedRun::Describe() {
  const SupervisedRunOptions& options = options_;
  ports_.resize(4);
  for (int& port : ports_) {
    const auto free = net::ReservePort();
    EXPECT_OK(free.status());
    port = free.value_or(0);
  }
  TinyRun(folder_, "train");
  const std::string rows =
      WriteAdditions(folder_, "rows.jsonl", static_cast<int>(options.total_steps * kPrompts));
  const std::string config = folder_.Write(
      "supervised.yaml",
      absl::StrCat("model: {path: ", folder_ / "model", ", dtype: float32, random_init: true}\n",
                   "data: {train_files: [", rows, "], train_batch_size: ", kPrompts, "}\n",
                   "rollout: {n: ", kSamples, ", max_tokens: 8, replicas: 2, threads: 1, ",
                   "kv_cache_megabytes: 8, request_timeout_s: 60, endpoints: [\"",
                   AddressOf("rollout-0", 2), "\", \"", AddressOf("rollout-1", 3), "\"]}\n",
                   "trainer: {ranks: 2, threads: 1, endpoint: \"", AddressOf("trainer-0", 0),
                   "\", total_steps: ", options.total_steps, ", mode: ", options.mode,
                   ", update_policy: ", options.update_policy, ", save_freq: ", options.save_freq,
                   ", keep_last: 2, collective_timeout_s: 20, update_timeout_s: 20, "
                   "driver_lease_s: 4}\n",
                   "actor: {optim: {lr: 1e-3}}\n", "reward: {name: service, endpoint: \"",
                   reward_->address(), "\", timeout_s: 200}\n",
                   options.is_exact ? "numerics: exact\n" : "", "run_dir: ", run_dir(), "\n"));
  const std::map<std::string, std::string> plaintext = {{"TANDEM_INSECURE_PLAINTEXT", "1"}};
  for (int rank = 0; rank < 2; ++rank) {
    std::map<std::string, std::string> environment = {
        {"RANK", absl::StrCat(rank)},
        {"LOCAL_RANK", absl::StrCat(options.own_networks ? 0 : rank)},
        {"WORLD_SIZE", "2"},
        {"LOCAL_WORLD_SIZE", options.own_networks ? "1" : "2"},
        {"MASTER_ADDR", options.own_networks ? "trainer-0" : "127.0.0.1"},
        {"MASTER_PORT", options.own_networks ? "29500" : absl::StrCat(ports_[1])}};
    environment.insert(plaintext.begin(), plaintext.end());
    Add(absl::StrCat("trainer-", rank),
        {BinaryPath("tandem-trainer"), "--config", config, "--listen",
         rank == 0 || options.own_networks ? ListenOf(0) : "127.0.0.1:0"},
        environment);
  }
  for (int replica = 0; replica < 2; ++replica) {
    Add(absl::StrCat("rollout-", replica),
        {BinaryPath("tandem-rollout"), "--config", config, "--listen", ListenOf(2 + replica)},
        plaintext);
  }
  // As the Job's pod: it waits for the trainer, then goes on from the newest checkpoint.
  Add("driver",
      {"/bin/sh", "-c",
       absl::StrCat("'", BinaryPath("tandem"), "' health --endpoint ", AddressOf("trainer-0", 0),
                    " --service tandem.trainer.v1.TrainerService --wait --timeout 60 && exec '",
                    BinaryPath("tandem"), "' train --config '", config, "' --resume")},
      plaintext);
}

SupervisedRun::~SupervisedRun() {
  stopping_ = true;
  supervisor_.join();
}

void SupervisedRun::Add(const std::string& name, std::vector<std::string> argv,
                        std::map<std::string, std::string> environment) {
  absl::MutexLock lock(&mu_);
  Process& process = processes_[name];
  process.start.name = name;
  process.start.argv = std::move(argv);
  process.start.environment.insert(environment.begin(), environment.end());
}

absl::StatusOr<std::unique_ptr<rpc::ChildProcess>> SupervisedRun::Launch(
    const rpc::ChildProcessOptions& start) {
  if (network_ == nullptr) return rpc::ChildProcess::Start(start);
  ContainerOptions options;
  options.name = start.name;
  options.command = start.argv;
  options.environment.insert(start.environment.begin(), start.environment.end());
  options.log_path = start.log_path;
  return network_->Start(options);
}

void SupervisedRun::Supervise() {
  status_ = MakeNetwork();
  if (status_.ok()) Describe();
  described_.Notify();
  if (!status_.ok()) return;
  while (!stopping_) {
    {
      absl::MutexLock lock(&mu_);
      for (auto& [name, process] : processes_) Tend(name, process);
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  absl::MutexLock lock(&mu_);
  for (auto& [name, process] : processes_) {
    if (process.child != nullptr) process.child->Kill();
  }
  for (auto& [name, process] : processes_) process.child.reset();
}

void SupervisedRun::Tend(const std::string& name, Process& process) {
  if (process.child != nullptr && process.child->running()) return;
  if (name == "driver" && process.child != nullptr && process.child->ExitStatus().ok()) {
    finished_ = true;
    return;
  }
  const absl::Time now = absl::Now();
  if (process.child != nullptr && process.next_start == absl::InfiniteFuture()) {
    process.next_start = now + kBackOff;
  }
  if (now < process.next_start) return;
  process.next_start = absl::InfiniteFuture();
  process.start.log_path = folder_ / absl::StrCat(name, ".", ++process.num_starts, ".log");
  auto child = Launch(process.start);
  EXPECT_OK(child.status());
  if (child.ok()) process.child = *std::move(child);
}

void SupervisedRun::Kill(const std::string& name) {
  absl::MutexLock lock(&mu_);
  processes_.at(name).child->Kill();
}

void SupervisedRun::Terminate(const std::string& name) {
  absl::MutexLock lock(&mu_);
  processes_.at(name).child->Terminate();
}

bool SupervisedRun::RunIn(const std::string& name, const std::vector<std::string>& command) {
  absl::MutexLock lock(&mu_);
  return network_->Run(*processes_.at(name).child, command, absl::Seconds(30));
}

int64_t SupervisedRun::step() const {
  std::string text = ReadWhole(run_dir() + "/metrics.jsonl");
  text.resize(text.rfind('\n') + 1);  // without what is being written
  const auto lines = JsonLines(text);
  return lines.empty() ? 0 : lines.back()["training/global_step"].get<int64_t>();
}

int64_t SupervisedRun::NumStarts(const std::string& name) const {
  absl::MutexLock lock(&mu_);
  return processes_.at(name).num_starts;
}

std::string SupervisedRun::LogOf(const std::string& name) const {
  absl::MutexLock lock(&mu_);
  std::string out;
  for (int64_t life = 1; life <= processes_.at(name).num_starts; ++life) {
    out += ReadWhole(folder_ / absl::StrCat(name, ".", life, ".log"));
  }
  return out;
}

std::string SupervisedRun::Logs() const {
  absl::MutexLock lock(&mu_);
  std::string out;
  for (const auto& [name, process] : processes_) {
    for (int64_t life = 1; life <= process.num_starts; ++life) {
      absl::StrAppend(&out, "---- ", name, ", life ", life, "\n",
                      LastPart(ReadWhole(folder_ / absl::StrCat(name, ".", life, ".log"))));
    }
  }
  return out;
}

}  // namespace tandem::testing
