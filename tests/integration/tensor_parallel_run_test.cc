// Runs whose rollout replicas are split over ranks: weights go shard to shard, from a trainer that
// is split otherwise, and both sides agree on every token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;

struct Case {
  const char* name;
  const char* tensor_ranks;
  const char* transport;
  const char* replicas;
};

class TensorParallelRunTest : public ::testing::TestWithParam<Case> {};

std::vector<nlohmann::json> FirstSamples(const TempFolder& folder, const std::string& run,
                                         std::vector<std::string> overrides) {
  std::vector<std::string> args = TinyRun(folder, "train");
  overrides.push_back("run_dir=" + (folder / run));
  overrides.push_back("rollout.threads=1");
  for (const std::string& text : overrides) args.insert(args.end(), {"--set", text});
  const ProgramResult result = RunProgram("tandem", args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return JsonLines(ReadWhole(folder / run + "/rollouts/1.jsonl"));
}

TEST_P(TensorParallelRunTest, TrainsAndBothSidesAgree) {
  const Case& c = GetParam();
  const TempFolder folder;
  const auto whole = FirstSamples(folder, "whole", {"rollout.replicas=1"});
  const auto split =
      FirstSamples(folder, "split",
                   {std::string("rollout.tensor_model_parallel_size=") + c.tensor_ranks,
                    std::string("trainer.weight_transport=") + c.transport,
                    std::string("rollout.replicas=") + c.replicas});
  ASSERT_EQ(split.size(), whole.size());
  // The first step samples the same weights.
  std::vector<std::string> expected, found;
  for (const auto& sample : whole) expected.push_back(sample["response_ids"].dump());
  for (const auto& sample : split) found.push_back(sample["response_ids"].dump());
  EXPECT_EQ(found, expected);
  const auto metrics = JsonLines(ReadWhole(folder / "split/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 4);
  for (int step = 1; step <= 3; ++step) {
    // Of each version that was published, on every rank.
    EXPECT_LT(metrics[step]["training/rollout_probs_diff_max"], 1e-4) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Splits, TensorParallelRunTest,
                         ::testing::Values(Case{"TwoRanksReshard", "2", "reshard", "2"},
                                           Case{"TwoRanksDelta", "2", "delta", "1"},
                                           Case{"TwoRanksBroadcast", "2", "broadcast", "2"},
                                           Case{"KvHeadsInCopies", "4", "reshard", "1"}),
                         [](const auto& info) { return info.param.name; });

class ExpertParallelRunTest : public ::testing::TestWithParam<const char*> {};

// Four experts of a layer, two on each rank.
TEST_P(ExpertParallelRunTest, WholeExpertsSampleAndUpdateAsPartsDo) {
  const TempFolder folder;
  const auto run = [&](const std::string& name, std::vector<std::string> overrides) {
    std::vector<std::string> args = TinyRun(folder, "train");
    nlohmann::json config = testing::TinyModelConfig("Qwen3MoeForCausalLM");
    config.update({{"num_experts", 4}, {"num_experts_per_tok", 2}});
    folder.Write("model/config.json", config.dump());
    overrides.insert(overrides.end(),
                     {"run_dir=" + (folder / name), "rollout.threads=1", "rollout.replicas=1",
                      std::string("trainer.weight_transport=") + GetParam()});
    for (const std::string& text : overrides) args.insert(args.end(), {"--set", text});
    const ProgramResult result = RunProgram("tandem", args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return JsonLines(ReadWhole(folder / name + "/rollouts/1.jsonl"));
  };
  const auto whole = run("one", {});
  const auto split = run(
      "experts", {"rollout.tensor_model_parallel_size=2", "rollout.enable_expert_parallel=true"});
  ASSERT_EQ(split.size(), whole.size());
  ASSERT_FALSE(split.empty());
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(split[i]["response_ids"], whole[i]["response_ids"]);
  }
  const auto metrics = JsonLines(ReadWhole(folder / "experts/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 4);
  for (int step = 1; step <= 3; ++step) {
    EXPECT_LT(metrics[step]["training/rollout_probs_diff_max"], 1e-4) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ExpertParallelRunTest,
                         ::testing::Values("reshard", "delta", "broadcast"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ExpertParallelRun, ExpertsThatRanksCannotShareAreRefused) {
  const TempFolder folder;
  std::vector<std::string> args = TinyRun(folder, "train");
  nlohmann::json config = testing::TinyModelConfig("Qwen3MoeForCausalLM");
  config.update({{"num_experts", 5}, {"num_experts_per_tok", 2}});
  folder.Write("model/config.json", config.dump());
  for (const char* set :
       {"rollout.tensor_model_parallel_size=2", "rollout.enable_expert_parallel=true"}) {
    args.insert(args.end(), {"--set", set});
  }
  const ProgramResult result = RunProgram("tandem", args);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, ::testing::HasSubstr("rollout.enable_expert_parallel: layer 0 has 5"));
}

}  // namespace
}  // namespace tandem
