// Whole runs with reward functions as users write them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCountDigits[] = R"(
import sys

def helper(text):
    return sum(c.isdigit() for c in text)

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    print("judging an answer to", extra_info["prompt"])
    assert extra_info["answer"] == ground_truth
    return helper(solution_str)
)";

class PythonRewardRun : public ::testing::Test {
 protected:
  // Runs the tiny model with reward functions of this code.
  ProgramResult Train(const std::string& code, const std::vector<std::string>& overrides,
                      const std::vector<std::string>& flags = {}) {
    std::vector<std::string> args = TinyRun(folder_, "train");
    const std::string path = folder_.Write("my_reward.py", code);
    for (const std::string& value :
         {std::string("trainer.total_steps=2"), std::string("trainer.test_freq=0"),
          std::string("reward.name=exact_match"), "reward.path=" + path}) {
      args.insert(args.end(), {"--set", value});
    }
    for (const std::string& value : overrides) args.insert(args.end(), {"--set", value});
    args.insert(args.end(), flags.begin(), flags.end());
    return RunProgram("tandem", args);
  }

  std::string Read(const std::string& name) const {
    return ReadWhole(folder_ / "run" + ("/" + name));
  }

  const TempFolder folder_;
};

TEST_F(PythonRewardRun, TrainsOnTheFunctionsRewards) {
  const ProgramResult run = Train(kCountDigits, {"trainer.test_freq=2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  int samples = 0;
  for (const int step : {1, 2}) {
    for (const json& sample : JsonLines(Read("rollouts/" + std::to_string(step) + ".jsonl"))) {
      int digits = 0;
      for (const char c : sample["completion"].get<std::string>()) digits += c >= '0' && c <= '9';
      EXPECT_EQ(sample["rewards"], digits) << sample;
      ++samples;
    }
  }
  EXPECT_EQ(samples, 2 * 4 * 4);
  EXPECT_THAT(Read("logs/reward.log"), HasSubstr("judging an answer to "));
  EXPECT_THAT(run.out + run.err, Not(HasSubstr("judging an answer to ")));
  EXPECT_TRUE(JsonLines(Read("metrics.jsonl")).back().contains("val-core/my_reward/reward/mean@1"));
}

TEST_F(PythonRewardRun, LogsEachOfSeveralRewards) {
  const std::string path = folder_ / "my_reward.py";
  const ProgramResult run =
      Train("def length(completions, **kwargs): return [len(c) / 4 for c in completions]",
            {"reward.path=''",
             "reward.rewards=[{name: prefix_match, weight: 2}, {path: " + path + ", weight: -1}]"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json last = JsonLines(Read("metrics.jsonl")).back();
  EXPECT_NEAR(last["rollout/judged_reward/mean"].get<double>(),
              2 * last["reward/scores/prefix_match/mean"].get<double>() -
                  last["reward/scores/my_reward/mean"].get<double>(),
              1e-6);
  for (const json& sample : JsonLines(Read("rollouts/2.jsonl"))) {
    EXPECT_EQ(sample["rewards"], 2 * sample["scores"]["prefix_match"].get<double>() -
                                     sample["scores"]["my_reward"].get<double>());
  }
}

TEST_F(PythonRewardRun, AFunctionThatHangsEndsTheRunAtItsTimeLimit) {
  const ProgramResult run =
      Train("import time\ndef compute_score(solution_str, **kwargs): time.sleep(1000)",
            {"reward.timeout_s=2"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("compute_score took longer than 2s"), HasSubstr("row "),
                             HasSubstr("reward.timeout_s")));
}

TEST_F(PythonRewardRun, AFunctionThatDiesOnceIsCalledAgain) {
  const std::string flag = folder_ / "flag";
  const ProgramResult run = Train(
      "import os\ndef compute_score(solution_str, **kwargs):\n"
      "    if not os.path.exists('" +
          flag +
          "'):\n"
          "        open('" +
          flag +
          "', 'w').close()\n"
          "        os.abort()\n"
          "    return len(solution_str)\n",
      {});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("reward worker restarts"), HasSubstr("SIGABRT")));
}

TEST_F(PythonRewardRun, AFunctionThatAlwaysDiesEndsTheRun) {
  const ProgramResult run =
      Train("import os\ndef compute_score(solution_str, **kwargs): os._exit(7)", {});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("exited with 7"), HasSubstr("logs/reward.log")));
}

TEST_F(PythonRewardRun, AnExceptionIsShownWithItsTraceback) {
  const ProgramResult run =
      Train("def compute_score(ground_truth, solution_str, **kwargs):\n    return 1 / 0\n", {});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("of the data set: compute_score: ZeroDivisionError at " +
                                       (folder_ / "my_reward.py") + ":2"),
                             HasSubstr("    return 1 / 0")));
}

TEST_F(PythonRewardRun, ARewardThatIsNotThereIsFoundBeforeAnythingStarts) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--dry-run"}, std::vector<std::string>{}}) {
    const ProgramResult missing = Train("", {"reward.path=" + (folder_ / "none.py")}, flags);
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_THAT(missing.err, HasSubstr("reward.path: no file"));
    const ProgramResult broken = Train("import no_such_package", {}, flags);
    EXPECT_EQ(broken.exit_code, 1);
    EXPECT_THAT(broken.err, HasSubstr("ModuleNotFoundError"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  }
  const ProgramResult service = Train(
      "", {"reward.path=''", "reward.name=service", "reward.endpoint=127.0.0.1:1"}, {"--dry-run"});
  EXPECT_EQ(service.exit_code, 1);
  EXPECT_THAT(service.err, HasSubstr("no RewardService answered at 127.0.0.1:1"));
}

TEST(RewardCommand, ScoresCompletionsWithAFunction) {
  const TempFolder folder;
  const std::string path = folder.Write("my_reward.py", kCountDigits);
  const std::string input =
      folder.Write("in.jsonl", R"({"prompt": "p", "completion": "a12", "answer": "3"})"
                               "\n");
  const ProgramResult result = RunProgram("tandem", {"reward", "--path", path, "--input", input});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "{\"reward\":2.0}\n");
  EXPECT_THAT(result.err, HasSubstr("judging an answer to p"));
}

}  // namespace
}  // namespace tandem
