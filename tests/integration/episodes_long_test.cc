// A thousand episodes against an environment that is slow, fails and dies, of a policy that writes
// malformed calls: the rollouts have sampled what was trained on and what is accounted for, and not one
// token more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/tool_call_tokens.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::BinaryPath;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::TempFolder;

constexpr int kSteps = 8;
constexpr int kPrompts = 16;
constexpr int kSamples = 8;

class EpisodesLong : public ::testing::Test {
 protected:
  EpisodesLong() {
    args_ = testing::TinyRun(folder_, "train");
    testing::AddToolCallTokens(folder_, /*positions=*/512);
    const std::string config = args_.back();
    args_ = {"train", "--config", config};
    for (const std::string& set : std::vector<std::string>{
             "numerics=exact", "trainer.test_freq=0", absl::StrCat("trainer.total_steps=", kSteps),
             "trainer.ranks=1", absl::StrCat("data.train_batch_size=", kPrompts),
             "actor.entropy_coeff=0.05", absl::StrCat("rollout.n=", kSamples),
             "rollout.max_tokens=12", "environment.name=service", "environment.max_turns=4",
             "environment.max_tokens=300", "data.max_prompt_length=16", "reward.name=environment",
             "seed=5",
             absl::StrCat("environment.command=exec ", MORTAL_ENVIRONMENT, " ",
                          folder_ / "witness")}) {
      sets_.insert(sets_.end(), {"--set", set});
    }
  }

  // A service that outlives the run.
  std::unique_ptr<rpc::ChildProcess> Start(const std::string& program, const std::string& name,
                                           std::string& address) {
    std::vector<std::string> argv = {BinaryPath(program), "--config", args_[2], "--ready-file",
                                     folder_ / name};
    argv.insert(argv.end(), sets_.begin(), sets_.end());
    const std::string log = folder_ / name + ".log";
    auto child = rpc::ChildProcess::Start({.argv = argv, .log_path = log});
    EXPECT_TRUE(child.ok()) << child.status();
    const auto ready = rpc::WaitForReadyFile(folder_ / name, **child, absl::Seconds(120));
    EXPECT_TRUE(ready.ok()) << ready.status() << ReadWhole(log);
    address = ready.value_or("");
    return *std::move(child);
  }

  // Tokens that a rollout has sampled since its start.
  static int64_t SampledBy(const std::string& address) {
    const auto stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address));
    rollout::v1::GetServerInfoResponse info;
    const auto context = rpc::MakeContext(absl::Seconds(60));
    EXPECT_TRUE(stub->GetServerInfo(context.get(), {}, &info).ok());
    return info.num_generated_tokens();
  }

  const TempFolder folder_;
  std::vector<std::string> args_, sets_;
};

TEST_F(EpisodesLong, EveryTokenOfAThousandEpisodesIsTrainedOnOnceOrAccountedFor) {
  std::string trainer, rollouts[2];
  const auto trainer_process = Start("tandem-trainer", "trainer", trainer);
  const auto first = Start("tandem-rollout", "first", rollouts[0]);
  const auto second = Start("tandem-rollout", "second", rollouts[1]);
  std::vector<std::string> args = args_;
  args.insert(args.end(), sets_.begin(), sets_.end());
  for (const std::string& set :
       {"trainer.endpoint=" + trainer,
        absl::StrCat("rollout.endpoints=[\"", rollouts[0], "\",\"", rollouts[1], "\"]")}) {
    args.insert(args.end(), {"--set", set});
  }

  const ProgramResult run = testing::RunProgram("tandem", args, 1500);

  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<json> steps = JsonLines(ReadWhole(folder_ / "run/metrics.jsonl"));
  std::map<std::string, double> sums;
  double trained_tokens = 0;
  std::set<std::tuple<int, std::string, int>> places;
  int64_t sampled_in_rows = 0;
  int num_steps = 0;
  for (const json& step : steps) {
    const int number = step["training/global_step"];
    if (number == 0) continue;
    ++num_steps;
    EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0) << number;
    for (const char* name : {"environment/discarded_tokens", "environment/retried_episodes",
                             "environment/dropped_groups", "environment/malformed_tool_calls",
                             "environment/broken_streams"}) {
      sums[name] += step.value(name, 0.0);
    }
    const std::vector<json> rows =
        JsonLines(ReadWhole(folder_ / absl::StrCat("run/rollouts/", number, ".jsonl")));
    EXPECT_EQ(rows.size(), static_cast<size_t>(kPrompts * kSamples));
    for (const json& row : rows) {
      places.emplace(number, row["group"].get<std::string>(), row["index"].get<int>());
      for (const json& segment : row["segments"]) {
        if (segment["kind"] == "sampled") {
          sampled_in_rows += static_cast<int64_t>(segment["ids"].size());
        }
      }
    }
    trained_tokens += step["response_length/mean"].get<double>() * static_cast<double>(rows.size());
  }
  EXPECT_EQ(num_steps, kSteps);
  EXPECT_EQ(places.size(), static_cast<size_t>(kSteps * kPrompts * kSamples)) << "once each";
  EXPECT_NEAR(trained_tokens, static_cast<double>(sampled_in_rows), 1e-6 * trained_tokens);

  // The environment died, episodes were played again, and calls were malformed.
  EXPECT_GT(sums["environment/broken_streams"], 1);
  EXPECT_GT(sums["environment/retried_episodes"], 10);
  EXPECT_GT(sums["environment/malformed_tool_calls"], 10);
  EXPECT_EQ(sums["environment/dropped_groups"], 0);

  // The rollouts count by themselves.
  const int64_t sampled = SampledBy(rollouts[0]) + SampledBy(rollouts[1]);
  EXPECT_EQ(sampled, sampled_in_rows + static_cast<int64_t>(sums["environment/discarded_tokens"]));

  // The environment saw each turn but those whose calls were malformed; a death may show it a turn
  // twice, with the same tokens.
  std::map<std::pair<json, int>, int> seen;
  for (const json& line : JsonLines(ReadWhole(folder_ / "witness"))) {
    const auto [at, is_new] =
        seen.emplace(std::pair<json, int>{line["episode"], line["turn"].get<int>()},
                     line["num_tokens"].get<int>());
    EXPECT_EQ(at->second, line["num_tokens"]) << line;
  }
  int64_t seen_tokens = 0;
  for (const auto& [turn, tokens] : seen) seen_tokens += tokens;
  EXPECT_GT(seen_tokens, sampled / 2);
  EXPECT_LE(seen_tokens, sampled);
  RecordProperty("sampled_tokens", static_cast<int>(sampled));
  RecordProperty("deaths", static_cast<int>(sums["environment/broken_streams"]));
}

}  // namespace
}  // namespace tandem
