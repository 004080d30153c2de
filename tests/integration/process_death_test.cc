// A process of a run is killed: the run says which, and nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::HasSubstr;

// Service processes whose command line mentions `text`.
std::vector<pid_t> ServicesOf(const std::string& text) {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string command = ReadWhole(entry.path() / "cmdline");
    const std::string program = std::filesystem::path(command.c_str()).filename();
    if (program != "tandem-trainer" && program != "tandem-rollout") continue;
    if (command.find(text) != std::string::npos) pids.push_back(std::stoi(name));
  }
  return pids;
}

// Waits for a condition, polling; false when it does not come true in time.
template <typename Condition>
bool Eventually(Condition condition, int seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return condition();
}

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
