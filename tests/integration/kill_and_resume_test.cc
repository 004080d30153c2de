// A process of a run is killed, the run is resumed, and nothing is lost: a handful of the moments
// that tests/fault/kill_and_resume_fifty_times_test.cc draws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/interrupted_run.h"

namespace tandem {
namespace {

using ::tandem::testing::Describe;
using ::tandem::testing::ExpectWholeRun;
using ::tandem::testing::Kill;
using ::tandem::testing::Moment;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunAndKill;
using ::tandem::testing::RunProgram;
using ::tandem::testing::SavingReplay;
using ::tandem::testing::SavingTrain;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TrainedRows;

std::vector<std::string> Resumed(std::vector<std::string> args) {
  args.push_back("--resume");
  return args;
}

TEST(KillAndResume, AReplayEndsWithTheSameBits) {
  const TempFolder folder;
  const ProgramResult whole = RunProgram("tandem", SavingReplay(folder, "whole"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto expected = ExpectWholeRun(folder / "whole");
  const std::vector<std::string> args = SavingReplay(folder, "run");

  // Killed twice, the second time in the life that resumed.
  const Kill first{"trainer-1", Moment::kWriting, 2, 0};
  EXPECT_NE(RunAndKill(args, folder / "run", first).exit_code, 0);
  const Kill second{"driver", Moment::kTraining, 5, 1};
  EXPECT_NE(RunAndKill(Resumed(args), folder / "run", second).exit_code, 0);
  const ProgramResult last = RunProgram("tandem", Resumed(args));
  SCOPED_TRACE(last.err);

  ASSERT_EQ(last.exit_code, 0);
  EXPECT_THAT(last.err, ::testing::HasSubstr("resuming after step"));
  const auto actual = ExpectWholeRun(folder / "run");
  for (size_t i = 0; i < actual.size(); ++i) {
    for (const char* key : {"actor/loss", "actor/grad_norm", "actor/pg_loss"}) {
      EXPECT_EQ(actual[i][key], expected[i][key]) << key << ", step " << i + 1;
    }
  }
  EXPECT_EQ(ReadWhole(folder / "run/model/model.safetensors"),
            ReadWhole(folder / "whole/model/model.safetensors"));
}

struct Case {
  const char* mode;
  Kill kill;
};

class KillAndResumeTrain : public ::testing::TestWithParam<Case> {};

TEST_P(KillAndResumeTrain, TrainsEveryPromptOnce) {
  const TempFolder folder;
  const std::vector<std::string> args = SavingTrain(folder, "run", GetParam().mode);

  EXPECT_NE(RunAndKill(args, folder / "run", GetParam().kill).exit_code, 0);
  const ProgramResult last = RunProgram("tandem", Resumed(args));
  SCOPED_TRACE(last.err);

  ASSERT_EQ(last.exit_code, 0);
  ExpectWholeRun(folder / "run");
  // 24 rows, 4 prompts a step with 4 samples each: 8 steps are an epoch and a third.
  const std::vector<int64_t> rows = TrainedRows(folder / "run");
  ASSERT_EQ(rows.size(), 8 * 4 * 4);
  std::vector<int> times(24);
  for (size_t i = 0; i < 6 * 4 * 4; ++i) ++times[static_cast<size_t>(rows[i])];
  EXPECT_THAT(times, ::testing::Each(4));
}

class KillAndResumeAsync : public ::testing::TestWithParam<Kill> {};

TEST_P(KillAndResumeAsync, LosesNoPromptAndTrainsNoneTwice) {
  const TempFolder folder;
  std::vector<std::string> args = SavingTrain(folder, "run", "async");
  // None is dropped for its age, so that all must be there.
  args.insert(args.end(),
              {"--set", "trainer.max_staleness=2", "--set", "trainer.stale_samples=train"});

  EXPECT_NE(RunAndKill(args, folder / "run", GetParam()).exit_code, 0);
  const ProgramResult last = RunProgram("tandem", Resumed(args));
  SCOPED_TRACE(last.err);

  ASSERT_EQ(last.exit_code, 0);
  ExpectWholeRun(folder / "run");
  // 8 steps of 4 prompts: the 24 rows of the first epoch, in whatever order, and 8 of the second.
  const std::vector<int64_t> rows = TrainedRows(folder / "run");
  std::vector<int> times(24);
  for (const int64_t row : rows) ++times[static_cast<size_t>(row)];
  EXPECT_EQ(rows.size(), 8 * 4 * 4);
  EXPECT_THAT(times, ::testing::Each(::testing::AnyOf(4, 8)));

  const ProgramResult other =
      RunProgram("tandem", Resumed(SavingTrain(folder, "run", "one_step_off")));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, ::testing::HasSubstr("the checkpoint comes from trainer.mode=async"));
}

INSTANTIATE_TEST_SUITE_P(Moments, KillAndResumeAsync,
                         ::testing::Values(Kill{"driver", Moment::kWriting, 4, 3},
                                           Kill{"trainer-1", Moment::kTraining, 5, 0}),
                         [](const auto& info) { return Describe(info.param); });

INSTANTIATE_TEST_SUITE_P(Moments, KillAndResumeTrain,
                         ::testing::Values(Case{"sync", {"trainer-0", Moment::kSnapshot, 4, 0}},
                                           Case{"sync", {"rollout-0", Moment::kGeneration, 3, 2}},
                                           Case{"one_step_off", {"driver", Moment::kWriting, 4, 3}},
                                           Case{"one_step_off",
                                                {"rollout-0", Moment::kPublishing, 5, 0}}),
                         [](const auto& info) {
                           return std::string(info.param.mode) + "_" + Describe(info.param.kill);
                         });

}  // namespace
}  // namespace tandem
