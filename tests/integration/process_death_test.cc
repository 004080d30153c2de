// A process of a run is killed: the run says which, and nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <future>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"

namespace tandem {
namespace {

using ::tandem::testing::Eventually;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::ServicesOf;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::HasSubstr;

class ProcessDeathTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ProcessDeathTest, EndsTheRunNamingTheProcessAndLeavesNoOrphan) {
  const TempFolder folder;
  std::vector<std::string> args = TinyRun(folder, "train");
  args.insert(args.end(), {"--set", "trainer.total_steps=100000", "--set", "trainer.test_freq=0"});
  std::future<ProgramResult> run =
      std::async(std::launch::async, [&] { return RunProgram("tandem", args, 180); });
  ASSERT_TRUE(Eventually(
      [&] { return ReadWhole(folder / "run/metrics.jsonl").find("\n") != std::string::npos; },
      120));

  pid_t victim = 0;
  for (const pid_t pid : ServicesOf(folder.path())) {
    const std::string command = ReadWhole("/proc/" + std::to_string(pid) + "/cmdline");
    if (command.find(GetParam() + ".ready") != std::string::npos) victim = pid;
  }
  ASSERT_GT(victim, 0);
  kill(victim, SIGKILL);

  const ProgramResult result = run.get();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(GetParam()));
  EXPECT_TRUE(Eventually([&] { return ServicesOf(folder.path()).empty(); }, 20));
}

INSTANTIATE_TEST_SUITE_P(Victims, ProcessDeathTest,
                         ::testing::Values("trainer-0", "trainer-1", "rollout-1"),
                         [](const auto& info) {
                           std::string name = info.param;
                           name.erase(name.find('-'), 1);
                           return name;
                         });

TEST(ProcessDeath, OfTheDriverTakesItsServicesWithIt) {
  const TempFolder folder;
  std::vector<std::string> args = TinyRun(folder, "train");
  args.insert(args.end(), {"--set", "trainer.total_steps=100000", "--set", "trainer.test_freq=0"});
  std::future<ProgramResult> run =
      std::async(std::launch::async, [&] { return RunProgram("tandem", args, 180); });
  ASSERT_TRUE(Eventually(
      [&] { return ReadWhole(folder / "run/metrics.jsonl").find("\n") != std::string::npos; },
      120));
  const std::vector<pid_t> services = ServicesOf(folder.path());
  ASSERT_EQ(services.size(), 4);
  const std::string stat = ReadWhole("/proc/" + std::to_string(services[0]) + "/stat");
  const pid_t driver = std::stoi(stat.substr(stat.rfind(')') + 4));

  kill(driver, SIGKILL);

  run.get();
  EXPECT_TRUE(Eventually([&] { return ServicesOf(folder.path()).empty(); }, 20));
}

}  // namespace
}  // namespace tandem
