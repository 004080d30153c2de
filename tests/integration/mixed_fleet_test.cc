// Fleets whose replicas have different numbers of tensor-parallel ranks, of a model that splits
// unevenly over all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/io/atomic_file.h"
#include "common/net/reserved_port.h"
#include "common/rpc/channel.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tests/support/addition_data.h"
#include "tests/support/elastic_run.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"
#include "tests/support/status_matchers.h"
#include "tools/tandem/driver/local_cluster.h"

namespace tandem {
namespace {

using ::tandem::testing::BinaryPath;
using ::tandem::testing::Eventually;
using ::tandem::testing::GatedReward;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::HasSubstr;

constexpr int kPatience = 240;  // seconds; a wait that reaches it has failed

// Over 2 and over 4 ranks no size of it divides: 10 heads on 5 keys, 62 neurons, 15 tokens.
void WriteUnevenModel(const TempFolder& folder) {
  nlohmann::json config = testing::TinyModelConfig();
  config["hidden_size"] = 40;
  config["intermediate_size"] = 62;
  config["num_attention_heads"] = 10;
  config["num_key_value_heads"] = 5;
  folder.Write("model/config.json", config.dump());
}

struct Case {
  const char* name;
  const char* ranks;
  const char* transport;
  const char* shared_memory;
};

class MixedFleetTest : public ::testing::TestWithParam<Case> {};

TEST_P(MixedFleetTest, TrainsAndBothSidesAgreeOnEveryReplica) {
  const Case& c = GetParam();
  const TempFolder folder;
  std::vector<std::string> args = TinyRun(folder, "train");
  WriteUnevenModel(folder);
  args.insert(args.end(), {"--replica-ranks", c.ranks});
  for (const std::string& set :
       {std::string("rollout.threads=1"), std::string("trainer.weight_transport=") + c.transport,
        std::string("trainer.shared_memory=") + c.shared_memory}) {
    args.insert(args.end(), {"--set", set});
  }
  const ProgramResult result = RunProgram("tandem", args, kPatience);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 4);
  for (int step = 1; step <= 3; ++step) {
    // Of each version, on the replica that sampled: groups go to all of them.
    EXPECT_LT(metrics[step]["training/rollout_probs_diff_max"], 1e-4) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mixes, MixedFleetTest,
    ::testing::Values(Case{"OneTwoReshard", "1,2", "reshard", "true"},
                      Case{"OneTwoDeltaOverSockets", "1,2", "delta", "false"},
                      Case{"OneTwoBroadcast", "1,2", "broadcast", "true"},
                      Case{"OneTwoFourReshardOverSockets", "1,2,4", "reshard", "false"},
                      Case{"OneTwoFourDelta", "1,2,4", "delta", "true"},
                      Case{"OneTwoFourBroadcastOverSockets", "1,2,4", "broadcast", "false"},
                      Case{"TwoOfEach", "2,1,2,1", "delta", "true"}),
    [](const auto& info) { return info.param.name; });

// Trainer and replicas that the test starts, and ends.
class Services {
 public:
  Services(const TempFolder& folder, std::string config)
      : folder_(folder), config_(std::move(config)) {}

  struct Group {
    std::string address;  // of rank 0
    std::vector<std::unique_ptr<rpc::ChildProcess>> ranks;
  };

  Group Start(const std::string& program, const std::string& name, int size) {
    Group group;
    const auto port = net::ReservePort();
    EXPECT_OK(port.status());
    for (int rank = 0; rank < size; ++rank) {
      const std::string file = folder_ / (name + "." + std::to_string(rank));
      rpc::ChildProcessOptions options;
      options.name = name;
      options.argv = {BinaryPath(program),
                      "--config",
                      config_,
                      "--listen",
                      "127.0.0.1:0",
                      "--ready-file",
                      file + ".ready",
                      "--set",
                      "rollout.tensor_model_parallel_size=" + std::to_string(size)};
      options.environment = {
          {"RANK", std::to_string(rank)},       {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)}, {"LOCAL_WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port.value_or(0))}};
      options.log_path = file + ".log";
      auto child = rpc::ChildProcess::Start(std::move(options));
      EXPECT_OK(child.status());
      if (child.ok()) group.ranks.push_back(*std::move(child));
    }
    const auto at = rpc::WaitForReadyFile(folder_ / (name + ".0.ready"), *group.ranks[0],
                                          absl::Seconds(kPatience));
    EXPECT_OK(at.status()) << ReadWhole(folder_ / (name + ".0.log"));
    group.address = at.value_or("");
    return group;
  }

 private:
  const TempFolder& folder_;
  const std::string config_;
};

int64_t LiveVersion(const std::string& address) {
  auto stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address, {.retry = false}));
  auto context = rpc::MakeContext(absl::Seconds(10));
  rollout::v1::GetServerInfoResponse info;
  return stub->GetServerInfo(context.get(), {}, &info).ok() ? info.policy_version() : -1;
}

ProgramResult Sync(const Services::Group& trainer, const std::vector<std::string>& rollouts,
                   bool verify) {
  std::vector<std::string> args = {"sync", "--trainer", trainer.address};
  for (const std::string& rollout : rollouts) args.insert(args.end(), {"--rollout", rollout});
  if (verify) args.push_back("--verify");
  return RunProgram("tandem", args, kPatience);
}

// What a replica says to a few prompts, greedily.
std::vector<std::string> Greedy(const std::string& address) {
  std::vector<std::string> out;
  for (const char* prompt : {"1+2=", "6+4=", "0+0=", "3,3"}) {
    const ProgramResult result =
        RunProgram("tandem", {"generate", "--endpoint", address, "--prompt", prompt,
                              "--temperature", "0", "--max-tokens", "16", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto lines = JsonLines(result.out);
    out.push_back(lines.empty() ? "nothing" : lines[0]["ids"].dump());
  }
  return out;
}

TEST(MixedFleet, AReplicaOfAnotherSizeJoinsLosesARankAndComesBackWhileTheOthersStayRight) {
  const TempFolder folder;
  TinyRun(folder, "train");
  WriteUnevenModel(folder);
  GatedReward reward(absl::Milliseconds(200));
  constexpr int kSteps = 40;
  const std::string config = folder.Write("mixed.yaml", R"(
model: {path: )" + (folder / "model") + R"(, dtype: float32, random_init: true}
data: {train_files: [)" + (folder / "train.jsonl") +
                                                            R"(], train_batch_size: 2}
rollout: {n: 4, max_tokens: 8, threads: 1, kv_cache_megabytes: 8, collective_timeout_s: 30,
          request_timeout_s: 60, endpoints_file: )" + (folder / "endpoints") +
                                                            R"(}
trainer: {ranks: 2, threads: 1, total_steps: )" + std::to_string(kSteps) +
                                                            R"(, weight_transport: delta,
          update_policy: available, update_timeout_s: 30, collective_timeout_s: 60}
actor: {optim: {lr: 1e-3}}
reward: {name: service, endpoint: ")" + reward.address() + R"(", timeout_s: 200}
run_dir: )" + (folder / "run") + "\n");
  Services services(folder, config);
  const Services::Group trainer = services.Start("tandem-trainer", "trainer", 2);
  const Services::Group four = services.Start("tandem-rollout", "four", 4);
  const Services::Group one = services.Start("tandem-rollout", "one", 1);
  const auto list = [&](const std::vector<std::string>& addresses) {
    std::string text;
    for (const std::string& address : addresses) text += address + "\n";
    ASSERT_OK(io::WriteFileAtomically(folder / "endpoints", text));
  };
  list({four.address, one.address});
  auto run = std::async(std::launch::async, [&] {
    return RunProgram("tandem",
                      {"train", "--config", config, "--set", "trainer.endpoint=" + trainer.address},
                      2 * kPatience);
  });
  const auto is_over = [&] {
    return run.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  const auto step = [&] {
    std::string text = ReadWhole(folder / "run/metrics.jsonl");
    text.resize(text.rfind('\n') + 1);
    const auto lines = JsonLines(text);
    return lines.empty() ? int64_t{0} : lines.back()["training/global_step"].get<int64_t>();
  };
  const auto await_step = [&](int64_t wanted) {
    return Eventually([&] { return is_over() || step() >= wanted; }, kPatience);
  };
  ASSERT_TRUE(await_step(2));

  // It joins while the run trains, and goes on with deltas.
  reward.Close();  // the run is held until it is up
  Services::Group two = services.Start("tandem-rollout", "two", 2);
  list({four.address, one.address, two.address});
  reward.Open();
  ASSERT_TRUE(Eventually([&] { return is_over() || LiveVersion(two.address) >= 0; }, kPatience));
  ASSERT_FALSE(is_over()) << run.get().err;
  const int64_t joined = LiveVersion(two.address);
  ASSERT_TRUE(
      Eventually([&] { return is_over() || LiveVersion(two.address) > joined + 1; }, kPatience));

  // It loses a rank, which is its end.
  ASSERT_FALSE(is_over()) << run.get().err;
  two.ranks[1]->Kill();
  const ProgramResult result = run.get();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(step(), kSteps);
  const ProgramResult right = Sync(trainer, {four.address, one.address}, /*verify=*/true);
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_EQ(LiveVersion(four.address), kSteps);
  EXPECT_EQ(Greedy(four.address), Greedy(one.address));

  // Another of its size is brought to the version that the others have.
  const Services::Group again = services.Start("tandem-rollout", "again", 2);
  const std::vector<std::string> all = {one.address, again.address, four.address};
  const ProgramResult published = Sync(trainer, all, /*verify=*/false);
  EXPECT_EQ(published.exit_code, 0) << published.err;
  const ProgramResult verified = Sync(trainer, all, /*verify=*/true);
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_EQ(Greedy(again.address), Greedy(one.address));
}

}  // namespace
}  // namespace tandem
