// Reward functions as users write them, in worker processes.
#include "tools/tandem/reward/python_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

class PythonRewardTest : public ::testing::Test {
 protected:
  PythonReward::Options Options(const std::string& code, const std::string& function = "") {
    path_ = folder_.Write("my_reward.py", code);
    return {.function = {.python = "/usr/bin/python3",
                         .path = path_,
                         .name = function,
                         .log_path = folder_ / "logs/reward.log"},
            .timeout = absl::Minutes(1)};
  }

  static PythonGroup Group(std::vector<std::string> completions) {
    PythonGroup group{.name = "row 3 of the data set",
                      .prompt = "<user>2+2=",  // rendered
                      .answer = "4",
                      .row = {{"prompt", "2+2="}, {"answer", "4"}, {"level", 7}},
                      .prompt_ids = {1, 2}};
    group.completions = std::move(completions);
    group.completion_ids.resize(group.completions.size(), {5, 6});
    return group;
  }

  // The rewards of a group.
  static absl::StatusOr<OptionalRewards> Score(PythonReward& reward, const PythonGroup& group) {
    absl::StatusOr<std::vector<OptionalRewards>> rewards = reward.Score({group});
    if (!rewards.ok()) return rewards.status();
    return (*rewards)[0];
  }
  absl::StatusOr<OptionalRewards> Score(const std::string& code, const PythonGroup& group,
                                        const std::string& function = "") {
    PythonReward reward(Options(code, function));
    return Score(reward, group);
  }

  const TempFolder folder_;
  std::string path_;
};

TEST_F(PythonRewardTest, CallsVerlsFunctionForEachCompletion) {
  EXPECT_THAT(Score(R"(
def normalise(text):
    return text.strip()

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    right = normalise(solution_str) == ground_truth
    return {"score": right + extra_info["level"], "acc": right}
)",
                    Group({" 4", "5"})),
              IsOkAndHolds(ElementsAre(Optional(8.0), Optional(7.0))));
}

TEST_F(PythonRewardTest, AMessageThatNestsDeeplyIsRefused) {
  for (const std::string& message :
       {std::string("b'{\"error\":' + b'[' * 1000000 + b']' * 1000000 + b'}'"),
        std::string("b'[' * 1000000"), std::string("b'{\"error\":\"\\xff\"}'")}) {
    EXPECT_THAT(Score(R"(
import gc, socket
body = )" + message + R"(
for connection in [o for o in gc.get_objects() if isinstance(o, socket.socket)]:
    connection.sendall(len(body).to_bytes(4, "little") + body)

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return 1
)",
                      Group({"4"})),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expected a message in JSON")))
        << message;
  }
}

TEST_F(PythonRewardTest, TakesVerlsColumns) {
  PythonGroup group = Group({"4"});
  group.row = {{"data_source", "sums"},
               {"reward_model", {{"ground_truth", {{"target", 4}}}}},
               {"extra_info", {{"index", 2}}}};
  EXPECT_THAT(Score(R"(
def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
    return (data_source == "sums") + 10 * ground_truth["target"] + 100 * extra_info["index"]
)",
                    group),
              IsOkAndHolds(ElementsAre(Optional(241.0))));
}

TEST_F(PythonRewardTest, CallsTrlsFunctionForAGroup) {
  EXPECT_THAT(Score(R"(
def reward_lengths(prompts, completions, level, **kwargs):
    assert prompts == ["2+2="] * 3 and level == [7] * 3 and kwargs["answer"] == ["4"] * 3
    assert kwargs["completion_ids"] == [[5, 6]] * 3 and kwargs["prompt_ids"] == [[1, 2]] * 3
    return [len(c) / max(map(len, completions)) if c else None for c in completions]
)",
                    Group({"ab", "", "abcd"})),
              IsOkAndHolds(ElementsAre(Optional(0.5), std::nullopt, Optional(1.0))));
}

TEST_F(PythonRewardTest, GivesTrlsFunctionMessagesWhereTheRowHasMessages) {
  PythonGroup group = Group({"4"});
  group.row["prompt"] = nlohmann::json::array({{{"role", "user"}, {"content", "2+2?"}}});
  EXPECT_THAT(Score(R"(
async def f(prompts, completions, **kwargs):
    return [float(p[-1]["content"] == "2+2?" and c[0] == {"role": "assistant", "content": "4"})
            for p, c in zip(prompts, completions)]
)",
                    group),
              IsOkAndHolds(ElementsAre(Optional(1.0))));
}

TEST_F(PythonRewardTest, ScoresEveryGroupInItsPlace) {
  PythonReward::Options options =
      Options("def compute_score(solution_str, **kwargs): return float(solution_str)");
  options.max_workers = 3;
  PythonReward reward(options);
  std::vector<PythonGroup> groups;
  for (int g = 0; g < 8; ++g) groups.push_back(Group({absl::StrCat(g), absl::StrCat(10 * g)}));
  ASSERT_OK_AND_ASSIGN(const std::vector<OptionalRewards> rewards, reward.Score(groups));
  ASSERT_EQ(rewards.size(), groups.size());
  for (int g = 0; g < 8; ++g) {
    EXPECT_THAT(rewards[g], ElementsAre(Optional(1.0 * g), Optional(10.0 * g)));
  }
}

TEST_F(PythonRewardTest, FindsAFunctionBySignatureOrName) {
  const std::string two =
      "def a(completions, **kwargs): return [1.0]\n"
      "def b(completions, **kwargs): return [2.0]\n";
  EXPECT_THAT(Score(two, Group({"4"}), "b"), IsOkAndHolds(ElementsAre(Optional(2.0))));
  EXPECT_THAT(Score(two, Group({"4"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(path_), HasSubstr("a, b"), HasSubstr("reward.function"))));
  EXPECT_THAT(Score(two, Group({"4"}), "c"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("expected a function c"), HasSubstr("the file has a, b"))));
  EXPECT_THAT(Score("def judge(text): return 1", Group({"4"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("expected compute_score("), HasSubstr("has judge"))));
}

TEST_F(PythonRewardTest, AFileThatCannotBeLoadedIsReportedWithItsLine) {
  PythonReward::Options options = Options("import no_such_package\n");  // sets path_
  EXPECT_THAT(PythonReward(options).Check(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(absl::StrCat("ModuleNotFoundError at ", path_, ":1")),
                             HasSubstr("import no_such_package"))));
  options = Options("x = 1\ndef f(:\n");
  EXPECT_THAT(PythonReward(options).Check(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat("SyntaxError at ", path_, ":2"))));
  options = Options("");
  options.function.path = folder_ / "none.py";
  EXPECT_THAT(PythonReward(options).Check(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no file")));
  options.function.python = "no-such-python";
  EXPECT_THAT(PythonReward(options).Check(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("reward.python")));
}

TEST_F(PythonRewardTest, AnExceptionIsReportedWithTracebackAndRow) {
  EXPECT_THAT(Score(R"(def check(text):
    raise ValueError(f"no unit in {text!r}")

def compute_score(solution_str, **kwargs):
    return check(solution_str)
)",
                    Group({"4"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("row 3 of the data set: compute_score: ValueError at "),
                             HasSubstr(path_ + ":2: no unit in '4'"), HasSubstr("line 5, in"),
                             Not(HasSubstr("reward_worker.py")))));
}

TEST_F(PythonRewardTest, WhatIsNoNumberIsRefused) {
  const auto returns = [&](const std::string& value) {
    return Score(absl::StrCat("def compute_score(solution_str, **kwargs): return ", value),
                 Group({"4"}));
  };
  for (const char* value : {"'1'", "[1]", "{'acc': 1}", "float('nan')", "float('inf')"}) {
    EXPECT_THAT(returns(value),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("row 3"), HasSubstr("compute_score: returned"))))
        << value;
  }
  EXPECT_THAT(Score("def f(completions, **kwargs): return [1]", Group({"4", "5"})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a list of 2 numbers")));
}

TEST_F(PythonRewardTest, AHungCallIsRepeatedOnceInANewProcess) {
  PythonReward::Options options = Options(R"(
import os, time
def compute_score(solution_str, extra_info, **kwargs):
    if solution_str == "always" or not os.path.exists(extra_info["flag"]):
        open(extra_info["flag"], "w").close()
        time.sleep(1000)
    return os.getpid()
)");
  options.timeout = absl::Seconds(4);
  PythonReward reward(options);
  PythonGroup group = Group({"once"});
  group.row["flag"] = folder_ / "flag";
  EXPECT_THAT(Score(reward, group), tandem::testing::IsOk());
  group.completions = {"always"};
  EXPECT_THAT(Score(reward, group),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("row 3 of the data set"), HasSubstr("longer than 4s"),
                             HasSubstr("a second call"))));
}

TEST_F(PythonRewardTest, ACallThatEndsItsProcessIsRepeatedOnce) {
  PythonReward reward(Options(R"(
import os
def compute_score(solution_str, extra_info, **kwargs):
    if solution_str == "always" or not os.path.exists(extra_info["flag"]):
        open(extra_info["flag"], "w").close()
        os._exit(3)
    return 1
)"));
  PythonGroup group = Group({"once", "then"});
  group.row["flag"] = folder_ / "flag";
  EXPECT_THAT(Score(reward, group), IsOkAndHolds(ElementsAre(Optional(1.0), Optional(1.0))));
  group.completions = {"always"};
  group.completion_ids = {{}};
  EXPECT_THAT(Score(reward, group), StatusIs(absl::StatusCode::kUnavailable,
                                             AllOf(HasSubstr("row 3"), HasSubstr("exited with 3"),
                                                   HasSubstr(folder_ / "logs/reward.log"))));
}

TEST_F(PythonRewardTest, OutputGoesToTheLogAndStdinIsEmpty) {
  EXPECT_THAT(Score(R"(
import os, subprocess, sys
print("loaded")
def compute_score(solution_str, **kwargs):
    print("judging", solution_str)
    os.write(1, b"raw bytes\n")
    subprocess.run(["echo", "from a child"])
    return len(sys.stdin.read())
)",
                    Group({"4"})),
              IsOkAndHolds(ElementsAre(Optional(0.0))));
  EXPECT_EQ(ReadWhole(folder_ / "logs/reward.log"), "loaded\njudging 4\nraw bytes\nfrom a child\n");
}

TEST_F(PythonRewardTest, ModulesBesideTheFileAreFound) {
  folder_.Write("beside.py", "VALUE = 0.25");
  EXPECT_THAT(Score("from beside import VALUE\ndef compute_score(solution_str, **kw): return VALUE",
                    Group({"4"})),
              IsOkAndHolds(ElementsAre(Optional(0.25))));
}

TEST_F(PythonRewardTest, WorkersEndWithTheirOwner) {
  pid_t pid = 0;
  {
    PythonReward reward(
        Options("import os\ndef compute_score(solution_str, **kwargs): return os.getpid()"));
    ASSERT_OK_AND_ASSIGN(const OptionalRewards rewards, Score(reward, Group({"4"})));
    pid = static_cast<pid_t>(*rewards[0]);
    ASSERT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace tandem::reward
