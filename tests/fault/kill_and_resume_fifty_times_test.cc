// Every process of a run is killed at every moment of a step and of a checkpoint: fifty kills, each
// resumed to the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/interrupted_run.h"

namespace tandem {
namespace {

using ::tandem::testing::Describe;
using ::tandem::testing::ExpectWholeRun;
using ::tandem::testing::Kill;
using ::tandem::testing::kSavingSteps;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RandomKill;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunAndKill;
using ::tandem::testing::RunProgram;
using ::tandem::testing::SavingReplay;
using ::tandem::testing::SavingTrain;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TrainedRows;

constexpr uint64_t kReplayKills = 18, kTrainKills = 16;  // the latter for each mode

std::vector<std::string> Resumed(std::vector<std::string> args) {
  args.push_back("--resume");
  return args;
}

class FiftyTimes : public ::testing::TestWithParam<int> {};

// One test for each third, so that none takes too long: every seed is in one of them.
constexpr int kParts = 3;

TEST_P(FiftyTimes, AReplayEndsWithTheSameBits) {
  const TempFolder folder;
  ASSERT_EQ(RunProgram("tandem", SavingReplay(folder, "whole")).exit_code, 0);
  const auto expected = ExpectWholeRun(folder / "whole");
  const std::string model = ReadWhole(folder / "whole/model/model.safetensors");
  for (uint64_t seed = static_cast<uint64_t>(GetParam()); seed < kReplayKills; seed += kParts) {
    const Kill kill = RandomKill(seed, kSavingSteps, /*has_rollouts=*/false);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + Describe(kill));
    const std::string name = "run" + std::to_string(seed);
    const std::vector<std::string> args = SavingReplay(folder, name);

    RunAndKill(args, folder / name, kill);
    const ProgramResult last = RunProgram("tandem", Resumed(args));

    ASSERT_EQ(last.exit_code, 0) << last.err;
    const auto actual = ExpectWholeRun(folder / name);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i]["actor/loss"], expected[i]["actor/loss"]) << "step " << i + 1;
      EXPECT_EQ(actual[i]["actor/grad_norm"], expected[i]["actor/grad_norm"]) << "step " << i + 1;
    }
    EXPECT_EQ(ReadWhole(folder / (name + "/model/model.safetensors")), model);
  }
}

void TrainAndKill(const std::string& mode, int part, uint64_t first_seed) {
  const TempFolder folder;
  ASSERT_EQ(RunProgram("tandem", SavingTrain(folder, "whole", mode)).exit_code, 0);
  ExpectWholeRun(folder / "whole");
  const std::vector<int64_t> rows = TrainedRows(folder / "whole");
  for (uint64_t i = static_cast<uint64_t>(part); i < kTrainKills; i += kParts) {
    const Kill kill = RandomKill(first_seed + i, kSavingSteps, /*has_rollouts=*/true);
    SCOPED_TRACE(mode + ", seed " + std::to_string(first_seed + i) + ", " + Describe(kill));
    const std::string name = "run" + std::to_string(i);
    const std::vector<std::string> args = SavingTrain(folder, name, mode);

    RunAndKill(args, folder / name, kill);
    const ProgramResult last = RunProgram("tandem", Resumed(args));

    ASSERT_EQ(last.exit_code, 0) << last.err;
    ExpectWholeRun(folder / name);
    EXPECT_EQ(TrainedRows(folder / name), rows);
  }
}

TEST_P(FiftyTimes, ASyncRunTrainsEveryPromptOnce) { TrainAndKill("sync", GetParam(), 0); }

TEST_P(FiftyTimes, AOneStepOffRunTrainsEveryPromptOnce) {
  TrainAndKill("one_step_off", GetParam(), kTrainKills);
}

INSTANTIATE_TEST_SUITE_P(Parts, FiftyTimes, ::testing::Range(0, kParts));

}  // namespace
}  // namespace tandem
