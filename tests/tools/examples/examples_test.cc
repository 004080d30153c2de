// tools/examples, from health to a driver of one's own, run as a reader would run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <regex>

#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::BinaryPath;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kStart = absl::Seconds(60);
// tools/python's answer where PyPI cannot be reached.
constexpr int kNoPackages = 77;

std::string Tools(const std::string& path) {
  return std::string(std::getenv("TANDEM_SOURCE")) + "/tools/" + path;
}

// A trainer of one rank and a rollout, each with the tiny model.
class ExamplesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The scripts find `tandem` as a user's shell does.
    setenv("PATH",
           (std::filesystem::absolute(BinaryPath("")).string() + ":" + getenv("PATH")).c_str(), 1);
    const std::vector<std::string> run = testing::TinyRun(folder_, "train");
    config_ = run.back();
    trainer_ = Start("tandem-trainer", trainer_address_);
    rollout_ = Start("tandem-rollout", rollout_address_);
  }

  std::unique_ptr<rpc::ChildProcess> Start(const std::string& program, std::string& address) {
    auto child = rpc::ChildProcess::Start(
        {.argv = {BinaryPath(program), "--config", config_, "--set", "trainer.ranks=1", "--set",
                  "rollout.replicas=1", "--set", "actor.optim.lr=0.02", "--ready-file",
                  folder_ / program},
         .log_path = folder_ / program + ".log"});
    EXPECT_TRUE(child.ok()) << child.status();
    const auto ready = rpc::WaitForReadyFile(folder_ / program, **child, kStart);
    EXPECT_TRUE(ready.ok()) << ready.status() << testing::ReadWhole(folder_ / program + ".log");
    address = ready.value_or("");
    return *std::move(child);
  }

  ProgramResult Shell(const std::string& script, const std::vector<std::string>& args) {
    return testing::RunProgram(Tools("examples/" + script), args, 120);
  }
  ProgramResult Python(const std::string& script, std::vector<std::string> args) {
    args.insert(args.begin(), Tools("examples/" + script));
    return testing::RunProgram(Tools("python"), args, 300);
  }

  const TempFolder folder_;
  std::string config_, trainer_address_, rollout_address_;
  std::unique_ptr<rpc::ChildProcess> trainer_, rollout_;
};

#define SKIP_WITHOUT_PACKAGES(result) \
  if ((result).exit_code == kNoPackages) GTEST_SKIP() << (result).err

TEST_F(ExamplesTest, TheShellLadder) {
  EXPECT_EQ(Shell("01_health.sh", {trainer_address_}).out, "SERVING\n");
  EXPECT_EQ(Shell("01_health.sh", {rollout_address_, "tandem.rollout.v1.RolloutService"}).exit_code,
            1);

  const ProgramResult update = Shell("03_update_weights.sh", {trainer_address_, rollout_address_});
  ASSERT_EQ(update.exit_code, 0) << update.err;
  EXPECT_EQ(Shell("01_health.sh", {rollout_address_, "tandem.rollout.v1.RolloutService"}).exit_code,
            0);

  const ProgramResult generated = Shell("02_generate.sh", {rollout_address_, "1+2="});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  const auto completions = JsonLines(generated.out);
  ASSERT_EQ(completions.size(), 2);
  EXPECT_EQ(completions[0]["logprobs"].size(), completions[0]["ids"].size());

  const ProgramResult step = Shell("04_train_step.sh", {trainer_address_, config_});
  ASSERT_EQ(step.exit_code, 0) << step.err;
  EXPECT_EQ(JsonLines(step.out)[0]["training/policy_version"], 1);
}

TEST_F(ExamplesTest, ThePythonLadder) {
  const ProgramResult health = Python(
      "01_health.py", {trainer_address_, rollout_address_ + "=tandem.rollout.v1.RolloutService"});
  SKIP_WITHOUT_PACKAGES(health);
  EXPECT_EQ(health.exit_code, 1) << health.err;
  EXPECT_THAT(health.out, AllOf(HasSubstr(" the process SERVING"), HasSubstr(" NOT_SERVING")));

  const ProgramResult update = Python("03_update_weights.py", {trainer_address_, rollout_address_});
  ASSERT_EQ(update.exit_code, 0) << update.err;
  EXPECT_THAT(update.out, AllOf(HasSubstr("version 0 is live on 1 rollouts"), HasSubstr("commit")));

  const ProgramResult generated = Python("02_generate.py", {rollout_address_, "1+2=", "3"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_THAT(generated.out, AllOf(HasSubstr("sample 2: "), HasSubstr("policy_version=0")));

  const ProgramResult step = Python("04_train_step.py", {trainer_address_});
  ASSERT_EQ(step.exit_code, 0) << step.err;
  EXPECT_THAT(step.out, HasSubstr("step 1 gave version 1"));
}

TEST_F(ExamplesTest, ADriverOfOnesOwnTeaches) {
  const ProgramResult run =
      Python("06_driver.py", {trainer_address_, rollout_address_, "25", "3,12,4,13", "5,12,6,13"});
  SKIP_WITHOUT_PACKAGES(run);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::vector<double> rewards;
  const std::regex line("reward ([0-9.]+)");
  for (std::sregex_iterator it(run.out.begin(), run.out.end(), line), end; it != end; ++it) {
    rewards.push_back(std::stod((*it)[1]));
  }
  ASSERT_EQ(rewards.size(), 25);
  EXPECT_GT(rewards.back(), rewards.front() + 0.2) << run.out;
}

TEST_F(ExamplesTest, ARewardServiceOfOnesOwnJudgesARun) {
  auto service = rpc::ChildProcess::Start(
      {.argv = {"/bin/sh", "-c", "exec \"$0\" \"$@\" > \"" + (folder_ / "reward") + "\"",
                Tools("python"), Tools("examples/05_reward_service.py"), "127.0.0.1:0"},
       .log_path = folder_ / "reward.log"});
  ASSERT_TRUE(service.ok()) << service.status();
  const auto endpoint = rpc::WaitForReadyFile(folder_ / "reward", **service, absl::Seconds(300));
  if (!endpoint.ok() && (*service)->ExitDescription() == "exited with 77") {
    GTEST_SKIP() << testing::ReadWhole(folder_ / "reward.log");
  }
  ASSERT_TRUE(endpoint.ok()) << endpoint.status() << testing::ReadWhole(folder_ / "reward.log");

  const ProgramResult run = testing::RunProgram(
      "tandem", {"train", "--config", config_, "--set", "trainer.endpoint=" + trainer_address_,
                 "--set", "trainer.ranks=1", "--set", "rollout.replicas=1", "--set",
                 "rollout.endpoints=[\"" + rollout_address_ + "\"]", "--set", "reward.name=service",
                 "--set", "reward.endpoint=" + *endpoint, "--set", "trainer.test_freq=0"});

  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const auto& sample : JsonLines(testing::ReadWhole(folder_ / "run/rollouts/1.jsonl"))) {
    const std::string text = sample["completion"];
    const bool is_number =
        !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    const double expected = !is_number ? 0 : text == sample["answer"] ? 1 : 0.5;
    EXPECT_EQ(sample["rewards"].get<double>(), expected) << sample;
  }
}

TEST_F(ExamplesTest, AnEnvironmentOfOnesOwnPlaysARun) {
  auto service = rpc::ChildProcess::Start(
      {.argv = {"/bin/sh", "-c", "exec \"$0\" \"$@\" > \"" + (folder_ / "environment") + "\"",
                Tools("python"), Tools("examples/07_environment.py"), "127.0.0.1:0"},
       .log_path = folder_ / "environment.log"});
  ASSERT_TRUE(service.ok()) << service.status();
  const auto endpoint =
      rpc::WaitForReadyFile(folder_ / "environment", **service, absl::Seconds(300));
  if (!endpoint.ok() && (*service)->ExitDescription() == "exited with 77") {
    GTEST_SKIP() << testing::ReadWhole(folder_ / "environment.log");
  }
  ASSERT_TRUE(endpoint.ok()) << endpoint.status()
                             << testing::ReadWhole(folder_ / "environment.log");

  const ProgramResult run =
      testing::RunProgram("tandem", {"train",
                                     "--config",
                                     config_,
                                     "--set",
                                     "trainer.endpoint=" + trainer_address_,
                                     "--set",
                                     "trainer.ranks=1",
                                     "--set",
                                     "rollout.replicas=1",
                                     "--set",
                                     "rollout.endpoints=[\"" + rollout_address_ + "\"]",
                                     "--set",
                                     "environment.name=service",
                                     "--set",
                                     "environment.endpoint=" + *endpoint,
                                     "--set",
                                     "environment.max_turns=3",
                                     "--set",
                                     "environment.max_tokens=40",
                                     "--set",
                                     "reward.name=environment",
                                     "--set",
                                     "trainer.test_freq=0"});

  ASSERT_EQ(run.exit_code, 0) << run.err;
  // A guess that is right ends the game with a point; anything else costs nothing, or a tenth.
  int num_right = 0;
  for (const auto& sample : JsonLines(testing::ReadWhole(folder_ / "run/rollouts/1.jsonl"))) {
    double sum = 0;
    for (const auto& segment : sample["segments"]) {
      const double reward = segment.value("reward", 0.0);
      EXPECT_TRUE(reward == 0 || reward == 1 || reward == -0.1) << sample;
      num_right += reward == 1;
      sum += reward;
    }
    EXPECT_NEAR(sample["rewards"].get<double>(), sum, 1e-9);
  }
  EXPECT_GT(num_right, 0);
}

// As a user would who installs the package and copies one example.
class CopiedExamplesTest : public ExamplesTest {
 protected:
  // Installs the wheel into folder_/site. Its exit code is kNoPackages where PyPI is out of reach.
  ProgramResult Install() {
    ProgramResult wheel = testing::RunProgram(Tools("wheel"), {folder_ / "wheel"}, 300);
    if (wheel.exit_code != 0) return wheel;
    const std::string file = wheel.out.substr(0, wheel.out.find('\n'));
    return testing::RunProgram("/usr/bin/python3", {"-m", "zipfile", "-e", file, folder_ / "site"},
                               60);
  }

  // Runs the example in a folder that holds nothing else.
  ProgramResult Run(const std::string& example, const std::vector<std::string>& args) {
    const std::string copied = folder_ / example;
    std::filesystem::create_directory(copied);
    std::filesystem::copy(Tools("examples/" + example), copied);
    // tools/python brings grpcio, and its own stubs only after those of PYTHONPATH.
    std::vector<std::string> command = {"PYTHONPATH=" + (folder_ / "site"), Tools("python"), "-v",
                                        copied + "/" + example};
    command.insert(command.end(), args.begin(), args.end());
    return testing::RunProgram("/usr/bin/env", command, 300);
  }
};

TEST_F(CopiedExamplesTest, EachRunsAloneWithTheWheelOfTheStubs) {
  const ProgramResult installed = Install();
  SKIP_WITHOUT_PACKAGES(installed);
  ASSERT_EQ(installed.exit_code, 0) << installed.err;
  struct Case {
    const char* example;
    std::vector<std::string> args;
    const char* says;
  };
  for (const Case& c :
       {Case{"01_health.py", {trainer_address_}, "the process SERVING"},
        Case{"03_update_weights.py",
             {trainer_address_, rollout_address_},
             "version 0 is live on 1 rollouts"},
        Case{"02_generate.py", {rollout_address_, "1+2=", "3"}, "sample 2: "},
        Case{"04_train_step.py", {trainer_address_}, "step 1 gave version 1"},
        Case{"06_driver.py", {trainer_address_, rollout_address_, "1", "3,12,4,13"}, "reward "}}) {
    const ProgramResult run = Run(c.example, c.args);

    EXPECT_EQ(run.exit_code, 0) << c.example << run.err.substr(run.err.rfind("Traceback") + 1);
    EXPECT_THAT(run.out, HasSubstr(c.says)) << c.example;
    EXPECT_THAT(run.err, HasSubstr(folder_ / "site/tandem/channels.py")) << c.example;
  }
  // A server, which a wrong port ends: everything is imported by then.
  const ProgramResult reward = Run("05_reward_service.py", {"no-such-host.invalid:1"});
  EXPECT_THAT(reward.err, AllOf(HasSubstr(folder_ / "site/tandem/channels.py"),
                                Not(HasSubstr("ModuleNotFoundError"))));
  const ProgramResult environment = Run("07_environment.py", {"no-such-host.invalid:1"});
  EXPECT_THAT(environment.err, AllOf(HasSubstr(folder_ / "site/tandem/channels.py"),
                                     Not(HasSubstr("ModuleNotFoundError"))));
}

}  // namespace
}  // namespace tandem
