// Runs of the pair from configuration to trained model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

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

std::vector<std::string> With(std::vector<std::string> args, std::vector<std::string> more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

class PairTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PairTest, TrainsEvaluatesAndLeavesARunFolder) {
  const TempFolder folder;

  const ProgramResult result =
      RunProgram("tandem", With(TinyRun(folder, "train"), {"--set", "trainer.mode=" + GetParam()}));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto summary = JsonLines(result.out);
  ASSERT_EQ(summary.size(), 1);
  EXPECT_EQ(summary[0]["steps"], 3);
  const auto metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 4);  // step 0 is the evaluation before training
  EXPECT_EQ(metrics[3]["training/global_step"], 3);
  EXPECT_EQ(metrics[3]["training/policy_version"], 3);
  EXPECT_TRUE(metrics[0].contains("val-core/prefix_match/reward/mean@1"));
  EXPECT_TRUE(metrics[3].contains("val-core/prefix_match/reward/mean@1"));
  for (int step = 1; step <= 3; ++step) {
    const auto& line = metrics[step];
    EXPECT_TRUE(std::isfinite(line["actor/grad_norm"].get<double>()));
    EXPECT_GT(line["timing_s/step"], 0);
    const auto samples =
        JsonLines(ReadWhole(folder / "run/rollouts/" + std::to_string(step) + ".jsonl"));
    EXPECT_EQ(samples.size(), 16);
    EXPECT_EQ(samples[0]["logprobs"].size(), samples[0]["response_ids"].size());
  }
  // Both sides run one forward: what the rollout said of a token is what the trainer says.
  EXPECT_LT(metrics[1]["training/rollout_probs_diff_max"], 1e-4);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/model/config.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/model/tokenizer.json"));

  const ProgramResult eval = RunProgram(
      "tandem", {"eval", "--model", folder / "run/model", "--data", folder / "test.jsonl",
                 "--reward", "prefix_match", "--set", "rollout.max_tokens=4"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_NEAR(JsonLines(eval.out)[0]["reward"].get<double>(),
              summary[0]["reward_after"].get<double>(), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Modes, PairTest, ::testing::Values("sync", "one_step_off", "async"));

TEST(Pair, AsyncWithoutStalenessIsSync) {
  const TempFolder folder;
  std::vector<std::vector<nlohmann::json>> samples;
  for (const std::string mode : {"sync", "async"}) {
    const ProgramResult result = RunProgram(
        "tandem", With(TinyRun(folder, "train"),
                       {"--set", "trainer.mode=" + mode, "--set", "trainer.max_staleness=0",
                        "--set", "trainer.test_freq=0", "--set", "run_dir=" + (folder / mode)}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    auto& of_run = samples.emplace_back();
    for (int step = 1; step <= 3; ++step) {
      for (auto& row :
           JsonLines(ReadWhole(folder / mode + "/rollouts/" + std::to_string(step) + ".jsonl"))) {
        of_run.push_back(row);
      }
    }
  }
  ASSERT_EQ(samples[0].size(), samples[1].size());
  for (size_t i = 0; i < samples[0].size(); ++i) {
    for (const char* key : {"group", "prompt_ids", "response_ids", "policy_versions"}) {
      EXPECT_EQ(samples[1][i][key], samples[0][i][key]) << key << " of sample " << i;
    }
  }
}

TEST(Pair, ReplayOfRecordedSamplesTrainsAsTheRunDid) {
  const TempFolder folder;
  const std::vector<std::string> train = TinyRun(folder, "train");
  ASSERT_EQ(RunProgram("tandem", train).exit_code, 0);
  const auto recorded = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  std::vector<std::string> replay = train;
  replay[0] = "replay";

  const ProgramResult result =
      RunProgram("tandem", With(replay, {"--input", folder / "run/rollouts/1.jsonl", "--set",
                                         "run_dir=" + (folder / "replay"), "--set",
                                         "trainer.ranks=1", "--set", "trainer.total_steps=1"}));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto replayed = JsonLines(result.out);
  ASSERT_EQ(replayed.size(), 1);
  EXPECT_NEAR(replayed[0]["actor/grad_norm"].get<double>(),
              recorded[1]["actor/grad_norm"].get<double>(),
              1e-5 * std::abs(recorded[1]["actor/grad_norm"].get<double>()));
}

// Every step ends an epoch.
TEST(Pair, ReplayOfAFolderRepeatsTheRunBitForBit) {
  const TempFolder folder;
  std::vector<std::string> train = TinyRun(folder, "train");
  testing::WriteAdditions(folder, "train.jsonl", 4);
  ASSERT_EQ(RunProgram("tandem", train).exit_code, 0);
  std::vector<std::string> replay = train;
  replay[0] = "replay";

  const ProgramResult result =
      RunProgram("tandem", With(replay, {"--input", folder / "run/rollouts", "--set",
                                         "run_dir=" + (folder / "replay")}));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto recorded = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  const auto replayed = JsonLines(result.out);
  ASSERT_EQ(replayed.size(), 3);
  for (int step = 1; step <= 3; ++step) {
    for (const char* key : {"actor/loss", "actor/grad_norm", "critic/advantages/max"}) {
      EXPECT_EQ(replayed[step - 1][key], recorded[step][key]) << key << " of step " << step;
    }
  }
  EXPECT_EQ(ReadWhole(folder / "replay/model/model.safetensors"),
            ReadWhole(folder / "run/model/model.safetensors"));
}

TEST(Pair, SupervisedTrainingLowersTheLoss) {
  const TempFolder folder;

  const ProgramResult result = RunProgram(
      "tandem",
      With(TinyRun(folder, "sft"), {"--set", "trainer.total_steps=20", "--set",
                                    "trainer.test_freq=0", "--set", "data.train_batch_size=24"}));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 20);
  EXPECT_LT(metrics[19]["train/loss"].get<double>(), metrics[0]["train/loss"].get<double>());
}

TEST(Pair, LossesDoNotDependOnRanksOrMicroBatches) {
  std::vector<std::vector<nlohmann::json>> runs;
  for (const auto& [ranks, tokens] :
       {std::pair{"1", "4096"}, std::pair{"2", "4096"}, std::pair{"3", "17"}}) {
    const TempFolder folder;
    const ProgramResult result = RunProgram(
        "tandem", With(TinyRun(folder, "sft"),
                       {"--set", "trainer.total_steps=20", "--set", "trainer.test_freq=0", "--set",
                        std::string("trainer.ranks=") + ranks, "--set",
                        std::string("trainer.max_tokens_per_micro_batch=") + tokens}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    runs.push_back(JsonLines(ReadWhole(folder / "run/metrics.jsonl")));
  }
  for (size_t run = 1; run < runs.size(); ++run) {
    for (int step = 0; step < 20; ++step) {
      const double expected = runs[0][step]["train/loss"];
      EXPECT_NEAR(runs[run][step]["train/loss"].get<double>(), expected, 1e-5 * expected)
          << "run " << run << " step " << step + 1;
      const double norm = runs[0][step]["actor/grad_norm"];
      EXPECT_NEAR(runs[run][step]["actor/grad_norm"].get<double>(), norm,
                  (step < 3 ? 1e-5 : 1e-3) * norm)
          << "run " << run << " step " << step + 1;
    }
  }
}

}  // namespace
}  // namespace tandem
