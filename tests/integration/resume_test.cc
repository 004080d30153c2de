// Runs that go on from a checkpoint, and checkpoints that become models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/addition_data.h"
#include "tests/support/interrupted_run.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using ::tandem::testing::ExpectWholeRun;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::SavingReplay;
using ::tandem::testing::SavingTrain;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> With(std::vector<std::string> args, std::vector<std::string> more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Steps of a run's metrics.
std::vector<int64_t> StepsOf(const std::string& run_dir) {
  std::vector<int64_t> steps;
  for (const auto& row : JsonLines(ReadWhole(run_dir + "/metrics.jsonl"))) {
    steps.push_back(row["training/global_step"]);
  }
  return steps;
}

void FlipBit(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(100);
  const char old = static_cast<char>(file.get());
  file.seekp(100);
  file.put(static_cast<char>(old ^ 1));
}

TEST(Resume, OfASyncRunHasTheLossesOfAnUninterruptedOne) {
  const TempFolder folder;
  ASSERT_EQ(RunProgram("tandem", SavingTrain(folder, "whole", "sync")).exit_code, 0);
  const auto expected = ExpectWholeRun(folder / "whole");
  const std::vector<std::string> args = SavingTrain(folder, "run", "sync");
  ASSERT_EQ(RunProgram("tandem", With(args, {"--set", "trainer.total_steps=4"})).exit_code, 0);

  const ProgramResult result = RunProgram("tandem", With(args, {"--resume"}));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto actual = ExpectWholeRun(folder / "run");
  for (size_t i = 0; i < actual.size(); ++i) {
    const double norm = expected[i]["actor/grad_norm"];
    EXPECT_NEAR(actual[i]["actor/grad_norm"].get<double>(), norm, 1e-4 * norm) << "step " << i + 1;
    EXPECT_EQ(actual[i]["critic/rewards/mean"], expected[i]["critic/rewards/mean"])
        << "step " << i + 1;
  }
  // The trainer's version 5 is the loaded one, 1 + that of the checkpoint; the run's is not.
  EXPECT_EQ(actual[4]["training/policy_version"], expected[4]["training/policy_version"]);
}

TEST(Resume, WithOtherRanksHasTheSameLosses) {
  const TempFolder folder;
  ASSERT_EQ(RunProgram("tandem", SavingReplay(folder, "whole")).exit_code, 0);
  const auto expected = ExpectWholeRun(folder / "whole");
  const std::vector<std::string> args = SavingReplay(folder, "run");
  for (const auto& [ranks, steps] :
       {std::pair{"2", "2"}, std::pair{"3", "4"}, std::pair{"1", "6"}, std::pair{"4", "8"}}) {
    const ProgramResult result =
        RunProgram("tandem", With(args, {"--resume", "--set", std::string("trainer.ranks=") + ranks,
                                         "--set", std::string("trainer.total_steps=") + steps}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  const auto actual = ExpectWholeRun(folder / "run");
  for (size_t i = 0; i < actual.size(); ++i) {
    const double norm = expected[i]["actor/grad_norm"];
    EXPECT_NEAR(actual[i]["actor/grad_norm"].get<double>(), norm, 1e-4 * norm) << "step " << i + 1;
  }
}

TEST(Resume, FallsBackToTheCheckpointBeforeADamagedOne) {
  const TempFolder folder;
  const std::vector<std::string> args = SavingReplay(folder, "run");
  ASSERT_EQ(RunProgram("tandem", args).exit_code, 0);
  const std::string model = ReadWhole(folder / "run/model/model.safetensors");
  FlipBit(folder / "run/checkpoints/step-8/rank-1-of-2.bin");

  const ProgramResult result = RunProgram("tandem", With(args, {"--resume"}));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("rank-1-of-2.bin is damaged"), HasSubstr("resuming after step 6")));
  ExpectWholeRun(folder / "run");
  EXPECT_EQ(ReadWhole(folder / "run/model/model.safetensors"), model);
  EXPECT_TRUE(fs::exists(folder / "run/previous-1/checkpoints/step-8"));

  FlipBit(folder / "run/checkpoints/step-8/manifest.json");
  fs::remove(folder / "run/checkpoints/step-6/rank-0-of-2.bin");
  const ProgramResult none = RunProgram("tandem", With(args, {"--resume"}));
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err,
              AllOf(HasSubstr("no checkpoint can be loaded"), HasSubstr("step-8/manifest"),
                    HasSubstr("step-6/rank-0-of-2.bin is missing")));
  EXPECT_EQ(StepsOf(folder / "run").size(), 8);  // nothing was cut
}

TEST(Resume, RefusesACheckpointOfAnotherModelOrCommand) {
  const TempFolder folder;
  const std::vector<std::string> args = SavingReplay(folder, "run");
  ASSERT_EQ(RunProgram("tandem", args).exit_code, 0);
  nlohmann::json config = nlohmann::json::parse(ReadWhole(folder / "model/config.json"));
  config["num_hidden_layers"] = 3;
  folder.Write("other/config.json", config.dump());
  fs::copy(folder / "model/tokenizer.json", folder / "other/tokenizer.json");

  const ProgramResult other =
      RunProgram("tandem", With(args, {"--resume", "--set", "model.path=" + (folder / "other")}));
  const ProgramResult train =
      RunProgram("tandem", With(SavingTrain(folder, "run", "sync"), {"--resume"}));

  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("is a checkpoint of another model"), HasSubstr("model.layers.2.")));
  EXPECT_EQ(train.exit_code, 1);
  EXPECT_THAT(train.err,
              HasSubstr("expected a checkpoint of tandem train, found one of tandem replay"));
  EXPECT_EQ(StepsOf(folder / "run").size(), 8);
}

TEST(Resume, BeginsAnewWhereThereIsNoCheckpointAndSaysSo) {
  const TempFolder folder;
  const std::vector<std::string> args = SavingReplay(folder, "run");

  const ProgramResult result = RunProgram("tandem", With(args, {"--resume"}));
  const ProgramResult absent = RunProgram("tandem", With(args, {"--resume=" + (folder / "none")}));

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the run starts with step 1"));
  ExpectWholeRun(folder / "run");
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.err, HasSubstr("no folder " + (folder / "none")));
}

TEST(Resume, OfSupervisedTrainingGoesThroughTheDataOnce) {
  const TempFolder folder;
  const auto sft = [&folder](const std::string& name, const std::string& steps) {
    return With(TinyRun(folder, "sft"),
                {"--set", "run_dir=" + (folder / name), "--set", "trainer.total_steps=" + steps,
                 "--set", "trainer.test_freq=0", "--set", "trainer.save_freq=2", "--resume"});
  };
  ASSERT_EQ(RunProgram("tandem", sft("whole", "6")).exit_code, 0);
  ASSERT_EQ(RunProgram("tandem", sft("run", "3")).exit_code, 0);

  const ProgramResult result = RunProgram("tandem", sft("run", "6"));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(StepsOf(folder / "run"), ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
  const auto expected = JsonLines(ReadWhole(folder / "whole/metrics.jsonl"));
  const auto actual = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i]["train/loss"], expected[i]["train/loss"]) << "step " << i + 1;
  }
}

TEST(Export, WritesTheModelThatTheRunWrote) {
  const TempFolder folder;
  ASSERT_EQ(RunProgram("tandem", SavingReplay(folder, "run")).exit_code, 0);

  const ProgramResult result =
      RunProgram("tandem", {"export", "--checkpoint", folder / "run/checkpoints/step-8", "--output",
                            folder / "exported"});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(JsonLines(result.out)[0]["step"], 8);
  EXPECT_EQ(ReadWhole(folder / "exported/model.safetensors"),
            ReadWhole(folder / "run/model/model.safetensors"));
  EXPECT_EQ(ReadWhole(folder / "exported/config.json"),
            ReadWhole(folder / "run/model/config.json"));
  const ProgramResult again =
      RunProgram("tandem", {"export", "--checkpoint", folder / "run/checkpoints/step-8", "--output",
                            folder / "exported"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("expected no folder or an empty one"));
}

TEST(Checkpoint, ThatCannotBeWrittenIsToldAndTrainingGoesOn) {
  const TempFolder folder;
  const std::vector<std::string> args = SavingReplay(folder, "run");
  // Where the folder of checkpoints should be, there is a file.
  folder.Write("run/checkpoints", "in the way");

  const ProgramResult result = RunProgram("tandem", args);

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the checkpoint of step 2 could not be written"));
  const auto rows = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), 8);
  EXPECT_EQ(rows[1]["checkpoint/failures"], 1);
}

}  // namespace
}  // namespace tandem
