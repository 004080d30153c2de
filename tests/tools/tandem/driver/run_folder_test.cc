#include "tools/tandem/driver/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/config/load.h"
#include "common/io/jsonl.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::TempFolder;

config::v1::RunConfig ConfigIn(const std::string& run_dir) {
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.set_run_dir(run_dir);
  return config;
}

TEST(RunFolder, WritesOneLineOfMetricsAStep) {
  const TempFolder temp;
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));

  ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.5}}));
  ASSERT_OK(folder.WriteMetrics(2, {{"actor/loss", 0.25}}));

  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1]["training/global_step"], 2);
  EXPECT_EQ(rows[1]["actor/loss"], 0.25);
}

TEST(RunFolder, SetsAsideWhatAnEarlierRunLeft) {
  const TempFolder temp;
  {
    ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
    ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.5}}));
  }

  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));

  ASSERT_OK_AND_ASSIGN(const auto now, io::ReadJsonLines(temp / "run/metrics.jsonl"));
  ASSERT_OK_AND_ASSIGN(const auto before, io::ReadJsonLines(temp / "run/previous-1/metrics.jsonl"));
  EXPECT_EQ(now.size(), 0);
  EXPECT_EQ(before.size(), 1);
}

v1::DriverState StateAfter(int64_t step) {
  v1::DriverState state;
  state.set_step(step);
  (*state.mutable_metrics())["actor/loss"] = 0.125;
  return state;
}

TEST(RunFolder, IsCutBackToTheStepThatARunGoesOnFrom) {
  const TempFolder temp;
  {
    ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
    for (const int step : {0, 1, 2, 3, 4}) {
      ASSERT_OK(folder.WriteMetrics(step, {{"actor/loss", 0.5}}));
      ASSERT_OK(folder.WriteRollouts(step, {}, 1.0));
      temp.Write("run/checkpoints/step-" + std::to_string(step) + "/manifest.json", "x");
    }
    temp.Write("run/checkpoints/.step-5.tmp-1-1/rank-0-of-1.bin", "x");
  }

  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Reopen(ConfigIn(temp / "run")));
  ASSERT_OK_AND_ASSIGN(const auto kept, folder.CutBack(StateAfter(2)));
  ASSERT_OK(folder.WriteMetrics(3, {{"actor/loss", 0.25}}));

  EXPECT_EQ(kept.size(), 3);
  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), 4);
  EXPECT_EQ(rows[2]["actor/loss"], 0.5);
  EXPECT_EQ(rows[3]["actor/loss"], 0.25);
  EXPECT_TRUE(std::filesystem::exists(temp / "run/rollouts/2.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/rollouts/3.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(temp / "run/checkpoints/step-2"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/checkpoints/step-3"));
  EXPECT_TRUE(std::filesystem::exists(temp / "run/previous-1/checkpoints/step-4"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/checkpoints/.step-5.tmp-1-1"));
}

TEST(RunFolder, AddsTheStepsLineWhereItWasLost) {
  const TempFolder temp;
  {
    ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
    ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.5}}));
  }
  std::ofstream(temp / "run/metrics.jsonl", std::ios::app) << R"({"training/global_st)";

  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Reopen(ConfigIn(temp / "run")));
  ASSERT_OK(folder.CutBack(StateAfter(2)));

  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1]["training/global_step"], 2);
  EXPECT_EQ(rows[1]["actor/loss"], 0.125);
}

TEST(RunFolder, WritesSamplesInTheFormThatReplayReads) {
  const TempFolder temp;
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
  Group group;
  group.prompt.row = 3;
  group.prompt.token_ids = {1, 2};
  Completion& completion = group.completions.emplace_back();
  completion.token_ids = {5, 0};
  completion.processed_logprobs = {-0.5f, -0.25f};
  completion.reward = 0.75;
  completion.finish_reason = common::v1::FINISH_REASON_STOP;

  ASSERT_OK(folder.WriteRollouts(4, {group}, 1.0));

  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/rollouts/4.jsonl"));
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows[0]["prompt_ids"], (std::vector<int>{1, 2}));
  EXPECT_EQ(rows[0]["response_ids"], (std::vector<int>{5, 0}));
  EXPECT_EQ(rows[0]["rewards"], 0.75);
  EXPECT_EQ(rows[0]["group"], 3);
  EXPECT_EQ(rows[0]["finish_reason"], "stop");
}

}  // namespace
}  // namespace tandem::driver
