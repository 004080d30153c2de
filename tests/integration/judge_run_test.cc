// Whole runs whose rewards come from a reward model that the run serves, from a judge, and from a
// built-in reward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fakes/fake_judge.h"
#include "tests/support/addition_data.h"
#include "tests/support/picture_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::FakeJudge;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A reward model of 67 tokens without a tokenizer: it scores the policy's ids, all of which it has.
std::string RewardFolder() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return absl::StrCat(source == nullptr ? "." : source,
                      "/tests/services/rollout/engine/reward_models/llama");
}

class JudgeRun : public ::testing::Test {
 protected:
  ProgramResult Train(const std::string& rewards, const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> args = TinyRun(folder_, "train");
    std::vector<std::string> values = {"trainer.total_steps=2", "trainer.test_freq=2",
                                       "data.max_prompt_length=16", "reward.name=exact_match",
                                       "reward.rewards=" + rewards};
    values.insert(values.end(), overrides.begin(), overrides.end());
    for (const std::string& value : values) args.insert(args.end(), {"--set", value});
    return RunProgram("tandem", args);
  }

  std::string JudgeEntry(const FakeJudge& judge) const {
    return absl::StrCat("{name: judge, weight: 0.5, judge: {url: '", judge.url(),
                        "', model: m, retries: 0}}");
  }

  std::vector<json> Metrics() const { return JsonLines(ReadWhole(folder_ / "run/metrics.jsonl")); }

  const TempFolder folder_;
};

// The length of the completion is the grade, at most 10.
http::Response GradeLength(const FakeJudge::Request& request) {
  const std::string& text = request.text;
  const size_t begin = text.rfind("<response>\n") + 11;
  const size_t length = text.rfind("\n</response>") - begin;
  return FakeJudge::Completion(absl::StrCat("Score: ", std::min<size_t>(length, 10)));
}

TEST_F(JudgeRun, TrainsOnTheSumOfAllThree) {
  FakeJudge judge(GradeLength);
  const ProgramResult run =
      Train(absl::StrCat("[", JudgeEntry(judge), ", {name: model, model: {path: '", RewardFolder(),
                         "'}}, {name: prefix_match, weight: 2}]"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  int samples = 0;
  for (const int step : {1, 2}) {
    for (const json& sample :
         JsonLines(ReadWhole(folder_ / absl::StrCat("run/rollouts/", step, ".jsonl")))) {
      const json& scores = sample["scores"];
      EXPECT_NEAR(
          scores["judge"].get<double>(),
          0.1 * std::min<double>(
                    static_cast<double>(sample["completion"].get<std::string>().size()), 10),
          1e-9);
      EXPECT_NE(scores["model"].get<double>(), 0);
      EXPECT_NEAR(sample["rewards"].get<double>(),
                  0.5 * scores["judge"].get<double>() + scores["model"].get<double>() +
                      2 * scores["prefix_match"].get<double>(),
                  1e-9);
      ++samples;
    }
  }
  EXPECT_EQ(samples, 2 * 4 * 4);
  const json last = Metrics().back();
  for (const char* name : {"judge", "model", "prefix_match"}) {
    EXPECT_TRUE(last.contains(absl::StrCat("reward/scores/", name, "/mean"))) << name;
    EXPECT_TRUE(last.contains(absl::StrCat("val-core/", name, "/reward/mean@1"))) << name;
  }
  EXPECT_EQ(last["reward/failed_judgements"], 0);
  EXPECT_EQ(last["val/dropped_prompts"], 0);
  EXPECT_THAT(ReadWhole(folder_ / "run/logs/reward-model-0.log") +
                  ReadWhole(folder_ / "run/logs/reward-model-1.log"),
              HasSubstr("rollout serving"));
}

TEST_F(JudgeRun, AGroupWhoseJudgeFailsDoesNotTrain) {
  // Of 2 steps of 4 groups, two judgements fail.
  FakeJudge judge([](const FakeJudge::Request& request) {
    if (absl::StrContains(request.text, "0+0=")) return http::Response{.code = 503};
    return GradeLength(request);
  });
  const ProgramResult run = Train(absl::StrCat("[", JudgeEntry(judge), "]"),
                                  {"data.train_batch_size=24", "trainer.total_steps=1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json last = Metrics().back();
  EXPECT_EQ(last["reward/dropped_groups"], 1);
  EXPECT_GE(last["reward/failed_judgements"], 1);
  EXPECT_EQ(last["val/dropped_prompts"], 1);
  const std::vector<json> samples = JsonLines(ReadWhole(folder_ / "run/rollouts/1.jsonl"));
  EXPECT_EQ(samples.size(), 23u * 4u);
}

TEST_F(JudgeRun, AJudgeThatIsNotThereIsFoundBeforeAnythingStarts) {
  const ProgramResult run = Train(
      "[{name: judge, judge: {url: 'http://127.0.0.1:1/v1', model: m}}]", {"reward.timeout_s=5"});
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err,
              HasSubstr("reward.rewards[0]: the judge at http://127.0.0.1:1/v1/chat/completions"));
}

TEST_F(JudgeRun, ARewardModelWithoutARolloutNamesTheKey) {
  std::vector<std::string> args = TinyRun(folder_, "train");
  args.erase(args.begin() + 1);  // --local
  for (const std::string& value :
       {std::string("reward.name=model"), "reward.model.path=" + RewardFolder(),
        std::string("trainer.endpoint=127.0.0.1:1"), std::string("trainer.test_freq=0"),
        std::string("data.max_prompt_length=16"),
        std::string("rollout.endpoints=['127.0.0.1:1']")}) {
    args.insert(args.end(), {"--set", value});
  }
  const ProgramResult run = RunProgram("tandem", args);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("reward.model.endpoint: expected HOST:PORT"));
}

TEST_F(JudgeRun, TheCommandRewardAsksAJudge) {
  FakeJudge judge([](const FakeJudge::Request& request) {
    if (absl::StrContains(request.text, "broken")) return http::Response{.code = 400};
    return FakeJudge::Completion(absl::StrContains(request.text, "good") ? "Score: 9" : "Score: 1");
  });
  const std::string config = folder_.Write(
      "judge.yaml", absl::StrCat("reward: {judge: {url: '", judge.url(), "', model: m}}"));
  const auto run = [&](const std::string& rows, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"reward",
                                     "--name",
                                     "judge",
                                     "--config",
                                     config,
                                     "--input",
                                     folder_.Write("rows.jsonl", rows)};
    args.insert(args.end(), more.begin(), more.end());
    return RunProgram("tandem", args);
  };
  const std::string good = R"({"prompt": "q", "completion": "good"})";
  const std::string bad = R"({"prompt": [{"role": "user", "content": "q"}], "completion": "x"})";

  const ProgramResult both = run(good + "\n" + bad + "\n", {"--set", "reward.judge.scale=1"});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(both.out, "{\"reward\":9.0}\n{\"reward\":1.0}\n");

  const ProgramResult failed = run(R"({"prompt": "q", "completion": "broken"})"
                                   "\n" +
                                   good + "\n");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, HasSubstr("1 of 2 judgements failed"));
  const std::vector<json> lines = JsonLines(failed.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0]["reward"].is_null());
  EXPECT_THAT(lines[0]["error"].get<std::string>(), HasSubstr("HTTP 400"));
  EXPECT_EQ(lines[1]["reward"], 0.9);

  const ProgramResult ids = run(R"({"prompt": [1, 2], "completion": "x"})");
  EXPECT_EQ(ids.exit_code, 1);
  EXPECT_THAT(ids.err, HasSubstr("rows.jsonl:1: prompt: expected text or messages"));
  EXPECT_EQ(run(good, {"--pattern", "x"}).exit_code, 2);
  EXPECT_EQ(RunProgram("tandem", {"reward", "--name", "judge", "--input", config}).exit_code, 2);
  EXPECT_EQ(
      RunProgram("tandem", {"reward", "--name", "gsm8k", "--config", config, "--input", config})
          .exit_code,
      2);
  EXPECT_EQ(
      RunProgram("tandem", {"reward", "--name", "gsm8k", "--allow-image-urls", "--input", config})
          .exit_code,
      2);

  // Pictures: of a row that lists them, and refused unless the judge is shown them.
  folder_.Write("a.png", testing::SquaresPng(2, 0));
  const std::string pictured =
      R"({"prompt": "how many?", "completion": "right", "answer": "2", "images": ["a.png"]})";
  const ProgramResult blind = run(pictured);
  EXPECT_EQ(blind.exit_code, 1);
  EXPECT_THAT(blind.err, AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("reward.judge.images=true")));
  const ProgramResult shown = run(pictured, {"--set", "reward.judge.images=true"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(judge.requests().back().images,
            std::vector<std::string>{"data:image/png;base64," +
                                     absl::Base64Escape(testing::SquaresPng(2, 0))});
}

TEST_F(JudgeRun, ARewardModelIsTriedWithoutARun) {
  const std::string model = "reward.model.path=" + RewardFolder();
  const auto run = [&](const std::string& rows, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {
        "reward", "--name", "model", "--set", model, "--input", folder_.Write("rows.jsonl", rows)};
    args.insert(args.end(), more.begin(), more.end());
    return RunProgram("tandem", args);
  };
  // The logits that transformers computes.
  const json golden = json::parse(ReadWhole(RewardFolder() + "/../golden.json"))["llama"];
  std::string rows;
  for (const json& sequence : golden["sequences"]) rows += json{{"ids", sequence}}.dump() + "\n";
  const ProgramResult scored = run(rows, {"--set", "model.dtype=float32"});
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  const std::vector<json> lines = JsonLines(scored.out);
  ASSERT_EQ(lines.size(), golden["sequences"].size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_NEAR(lines[i]["reward"].get<double>(), golden["logits"][i].get<double>(), 1e-4);
  }

  const ProgramResult text = run(R"({"prompt": "1", "completion": "2"})");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.err, AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("tokenizer.json")));
  EXPECT_EQ(run(R"({"ids": []})").exit_code, 1);
  // A sequence that it cannot score is an error of its own.
  const ProgramResult failed = run("{\"ids\": [1, 2]}\n{\"ids\": [67]}\n");
  EXPECT_EQ(failed.exit_code, 1);
  const std::vector<json> of_failed = JsonLines(failed.out);
  ASSERT_EQ(of_failed.size(), 2u);
  EXPECT_TRUE(of_failed[0]["reward"].is_number());
  EXPECT_TRUE(of_failed[1]["reward"].is_null());
  EXPECT_EQ(run("{}", {"--allow-image-urls"}).exit_code, 2);
  EXPECT_EQ(RunProgram("tandem", {"reward", "--name", "model", "--input", folder_ / "rows.jsonl"})
                .exit_code,
            2);
}

}  // namespace
}  // namespace tandem
