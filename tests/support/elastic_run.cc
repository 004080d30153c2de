#include "tests/support/elastic_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "common/io/atomic_file.h"
#include "common/rpc/channel.h"
#include "common/rpc/process.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tests/support/addition_data.h"
#include "tests/support/run_processes.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

using std::chrono::seconds;

constexpr int kPatience = 240;  // seconds; a test that reaches it has failed
constexpr double kTolerance = 1e-4;

}  // namespace

GatedReward::GatedReward(absl::Duration pace, const std::string& listen) : pace_(pace) {
  rpc::SecurityOptions security;
  security.insecure_plaintext = true;
  auto checked = rpc::TransportSecurity::Create(security, security::Role::kReward);
  EXPECT_OK(checked.status());
  rpc::ServerOptions options{.listen = listen, .role = "reward"};
  options.security = checked.value_or(nullptr);
  auto server = rpc::Server::Start(std::move(options), {this});
  EXPECT_OK(server.status());
  if (server.ok()) server_ = *std::move(server);
}

GatedReward::~GatedReward() {
  Open();
  server_.reset();
}

void GatedReward::Close() {
  absl::MutexLock lock(&mu_);
  is_open_ = false;
}

void GatedReward::Open() {
  absl::MutexLock lock(&mu_);
  is_open_ = true;
}

grpc::Status GatedReward::ComputeRewards(grpc::ServerContext*,
                                         const reward::v1::ComputeRewardsRequest* request,
                                         reward::v1::ComputeRewardsResponse* response) {
  // The driver's question whether the service is there passes the gate.
  if (request->completions().empty()) return grpc::Status::OK;
  for (const auto& completion : request->completions()) {
    uint32_t sum = 0;
    for (const uint32_t id : completion.completion_token_ids()) sum += id;
    response->add_rewards(static_cast<double>(sum % 5) / 4);
  }
  absl::SleepFor(pace_);
  absl::MutexLock lock(&mu_);
  ++num_waiting_;
  mu_.AwaitWithTimeout(absl::Condition(&is_open_), absl::Seconds(kPatience));
  --num_waiting_;
  return grpc::Status::OK;
}

ElasticRun::ElasticRun(int64_t total_steps, int64_t max_staleness, const std::string& in_flight) {
  // The weights of version 0: a step of supervised training from random ones.
  std::vector<std::string> sft = TinyRun(folder_, "sft");
  for (const std::string& set :
       {std::string("trainer.total_steps=1"), std::string("trainer.test_freq=0"),
        std::string("trainer.ranks=1"), "run_dir=" + (folder_ / "sft")}) {
    sft.insert(sft.end(), {"--set", set});
  }
  const ProgramResult made = RunProgram("tandem", sft);
  EXPECT_EQ(made.exit_code, 0) << made.err;

  WriteEndpoints();
  config_ = folder_.Write("elastic.yaml", R"(
model: {path: )" + (folder_ / "sft/model") + R"(, dtype: float32}
data: {train_files: [)" + (folder_ / "train.jsonl") +
                                              R"(], train_batch_size: 4}
# One token a step: slow enough that groups are always being sampled when weights come.
rollout:
  n: 8
  max_num_batched_tokens: 1
  max_tokens: 40
  kv_cache_megabytes: 8
  threads: 1
  in_flight: )" + in_flight + R"(
  request_timeout_s: 200
  endpoints_file: )" + (folder_ / "endpoints") +
                                              R"(
trainer:
  total_steps: )" + std::to_string(total_steps) +
                                              R"(
  mode: async
  max_staleness: )" + std::to_string(max_staleness) +
                                              R"(
  update_policy: available
  update_timeout_s: 60
  save_freq: 1
  keep_last: 0
  threads: 1
actor: {optim: {lr: 2e-2}}
reward: {name: service, endpoint: ")" + reward_.address() +
                                              R"(", timeout_s: 200}
run_dir: )" + run_dir() + "\n");
  trainer_ = Spawn("tandem-trainer", "trainer", trainer_address_);
}

std::unique_ptr<rpc::ChildProcess> ElasticRun::Spawn(const std::string& program,
                                                     const std::string& name,
                                                     std::string& address) {
  const std::string ready = folder_ / (name + ".ready");
  rpc::ChildProcessOptions options;
  options.name = name;
  options.argv = {BinaryPath(program), "--config",     config_, "--listen",
                  "127.0.0.1:0",       "--ready-file", ready};
  options.environment = {
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "0"}};
  options.log_path = folder_ / (name + ".log");
  auto process = rpc::ChildProcess::Start(std::move(options));
  EXPECT_OK(process.status());
  if (!process.ok()) return nullptr;
  auto at = rpc::WaitForReadyFile(ready, **process, absl::Seconds(kPatience));
  EXPECT_OK(at.status()) << ReadWhole(folder_ / (name + ".log"));
  address = at.value_or("");
  return *std::move(process);
}

void ElasticRun::WriteEndpoints() {
  std::string text = "# rollouts of the test\n";
  for (const Rollout& rollout : rollouts_) {
    if (rollout.is_listed) text += rollout.address + "\n";
  }
  EXPECT_OK(io::WriteFileAtomically(folder_ / "endpoints", text));
}

int ElasticRun::AddRollout() {
  Rollout rollout;
  const int number = static_cast<int>(rollouts_.size());
  rollout.process = Spawn("tandem-rollout", "rollout-" + std::to_string(number), rollout.address);
  rollouts_.push_back(std::move(rollout));
  WriteEndpoints();
  return number;
}

void ElasticRun::Start() {
  const std::vector<std::string> args = {"train", "--config", config_, "--set",
                                         "trainer.endpoint=" + trainer_address_};
  run_ = std::async(std::launch::async, [args] { return RunProgram("tandem", args, 1800); });
}

int64_t ElasticRun::step() const {
  const auto lines = JsonLines([this] {
    std::string text = ReadWhole(run_dir() + "/metrics.jsonl");
    return text.substr(0, text.rfind('\n') + 1);  // without what is being written
  }());
  return lines.empty() ? -1 : lines.back()["training/global_step"].get<int64_t>();
}

bool ElasticRun::is_over() { return run_.wait_for(seconds(0)) == std::future_status::ready; }

bool ElasticRun::AwaitStep(int64_t wanted) {
  return Eventually([&] { return is_over() || step() >= wanted; }, kPatience);
}

void ElasticRun::KillRollout(int number) { rollouts_[number].process->Kill(); }

void ElasticRun::StopRollout(int number) { rollouts_[number].process->Terminate(); }

void ElasticRun::UnlistRollout(int number) {
  rollouts_[number].is_listed = false;
  WriteEndpoints();
}

int64_t ElasticRun::LiveVersion(int number) const {
  auto stub = rollout::v1::RolloutService::NewStub(
      rpc::MakeChannel(rollouts_[number].address, {.retry = false}));
  auto context = rpc::MakeContext(absl::Seconds(10));
  rollout::v1::GetServerInfoResponse info;
  return stub->GetServerInfo(context.get(), {}, &info).ok() ? info.policy_version() : -1;
}

ProgramResult ElasticRun::Wait() { return run_.get(); }

ElasticRun::SpanCheck ElasticRun::ExpectTrueSpans(int64_t total_steps) {
  struct Sample {
    std::string line;
    int64_t num_prompt_tokens;
    nlohmann::json logprobs;
    nlohmann::json spans;
  };
  SpanCheck check;
  std::vector<Sample> samples;
  std::map<int64_t, std::vector<size_t>> of_version;
  for (int64_t step = 1; step <= total_steps; ++step) {
    for (const auto& row :
         JsonLines(ReadWhole(run_dir() + "/rollouts/" + std::to_string(step) + ".jsonl"))) {
      nlohmann::json ids = row["prompt_ids"];
      for (const auto& id : row["response_ids"]) ids.push_back(id);
      int64_t end = 0;
      check.mixed_samples += row["policy_versions"].size() > 1 ? 1 : 0;
      for (const auto& span : row["policy_versions"]) {
        EXPECT_EQ(span[1].get<int64_t>(), end);
        end = span[2];
        of_version[span[0]].push_back(samples.size());
      }
      EXPECT_EQ(end, static_cast<int64_t>(row["response_ids"].size()));
      samples.push_back({nlohmann::json{{"ids", ids}}.dump() + "\n",
                         static_cast<int64_t>(row["prompt_ids"].size()), row["logprobs"],
                         row["policy_versions"]});
    }
  }
  // Which checkpoint holds which version.
  std::map<int64_t, int64_t> step_of;
  for (const auto& line : JsonLines(ReadWhole(run_dir() + "/metrics.jsonl"))) {
    step_of[line["training/policy_version"]] = line["training/global_step"];
  }
  for (const auto& [version, indexes] : of_version) {
    std::string model = folder_ / "sft/model";
    if (version > 0) {
      EXPECT_EQ(step_of.count(version), 1u) << "no step has made version " << version;
      model = folder_ / ("version-" + std::to_string(version));
      const std::string checkpoint =
          run_dir() + "/checkpoints/step-" + std::to_string(step_of[version]);
      const ProgramResult exported = RunProgram(
          "tandem", {"export", "--checkpoint", checkpoint, "--output", model}, kPatience);
      EXPECT_EQ(exported.exit_code, 0) << exported.err;
    }
    std::set<size_t> unique(indexes.begin(), indexes.end());
    if (const auto before = of_version.find(version - 1); before != of_version.end()) {
      unique.insert(before->second.begin(), before->second.end());
    }
    std::string input;
    for (const size_t index : unique) input += samples[index].line;
    const ProgramResult scored =
        RunProgram("tandem",
                   {"score", "--model", model, "--side", "rollout", "--input",
                    folder_.Write("score.jsonl", input), "--set", "rollout.kv_cache_megabytes=8"},
                   kPatience);
    EXPECT_EQ(scored.exit_code, 0) << scored.err;
    const auto lines = JsonLines(scored.out);
    EXPECT_EQ(lines.size(), unique.size());
    if (lines.size() != unique.size()) return check;
    size_t at = 0;
    for (const size_t index : unique) {
      const nlohmann::json& truth = lines[at++]["logprobs"];
      const Sample& sample = samples[index];
      for (const auto& span : sample.spans) {
        for (int64_t t = span[1]; t < span[2].get<int64_t>(); ++t) {
          const double difference = std::abs(sample.logprobs[t].get<double>() -
                                             truth[sample.num_prompt_tokens + t - 1].get<double>());
          if (span[0] == version) {
            ++check.tokens;
            EXPECT_LT(difference, kTolerance)
                << "token " << t << " of sample " << index << ", said to be of version " << version;
          } else if (span[0] == version - 1) {
            ++check.held_against_next;
            check.contradicted += difference > kTolerance ? 1 : 0;
          }
        }
      }
    }
  }
  return check;
}

}  // namespace tandem::testing
