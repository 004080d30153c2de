// tools/reference: what is written there is what proto/ and the code say, and it names every metric
// that a run reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;

ProgramResult Check(const std::vector<std::string>& runs) {
  const std::string tools = std::string(std::getenv("TANDEM_SOURCE")) + "/tools/";
  std::vector<std::string> args = {tools + "reference/generate.py", "--check"};
  args.insert(args.end(), runs.begin(), runs.end());
  return RunProgram(tools + "python", args);
}

TEST(Reference, IsThatOfTheCodeAndDescribesWhatARunReports) {
  const TempFolder folder;
  const ProgramResult check = Check({});
  if (check.exit_code == 77) GTEST_SKIP() << check.err;
  EXPECT_EQ(check.exit_code, 0) << check.err;
  std::vector<std::string> args = testing::TinyRun(folder, "train");
  args.insert(args.end(),
              {"--set", "trainer.save_freq=1", "--set", "trainer.mode=async", "--set",
               "actor.use_kl_loss=true", "--set", "algorithm.rollout_correction.rollout_is=token"});
  const ProgramResult run = RunProgram("tandem", args);
  ASSERT_EQ(run.exit_code, 0) << run.err;

  const ProgramResult live = Check({folder / "run/metrics.jsonl"});

  EXPECT_EQ(live.exit_code, 0) << live.err;
}

TEST(Reference, StatesOneDefaultWhereSectionsShareAMessage) {
  const std::string page =
      testing::ReadWhole(std::string(std::getenv("TANDEM_SOURCE")) + "/tools/reference/config.md");

  EXPECT_THAT(page, ::testing::HasSubstr("| `actor.optim.lr` | `1e-6` | Peak learning rate. |\n"));
  EXPECT_THAT(page, ::testing::HasSubstr("| `critic.optim.lr` | `1e-5` | Peak learning rate. |\n"));
}

TEST(Reference, AMetricWithoutADescriptionIsNamed) {
  const TempFolder folder;
  const std::string run = folder.Write("metrics.jsonl", R"({"actor/no_such_thing": 1})");
  const ProgramResult check = Check({run});
  if (check.exit_code == 77) GTEST_SKIP() << check.err;
  EXPECT_EQ(check.exit_code, 1);
  EXPECT_THAT(check.err, ::testing::HasSubstr("actor/no_such_thing"));
}

}  // namespace
}  // namespace tandem
