// Commands from outside that need no run: benchmarks, rewards, tokens, health, and a rollout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "nlohmann/json.hpp"
#include "tests/support/http_get.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::WriteTinyModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Cli, ABenchmarkOfSequencesThatTheModelHasNoRoomForNamesTheFlags) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);  // of 64 positions

  const ProgramResult generate = RunProgram("tandem", {"bench", "generate", "--model", model});
  const ProgramResult groups =
      RunProgram("tandem", {"bench", "generate", "--model", model, "--workload", "grpo"});
  const ProgramResult train = RunProgram("tandem", {"bench", "train", "--model", model});

  EXPECT_EQ(generate.exit_code, 2);
  EXPECT_THAT(generate.err, AllOf(HasSubstr("192"), HasSubstr("max_position_embeddings 64"),
                                  HasSubstr("--prompt-tokens or --new-tokens")));
  EXPECT_EQ(groups.exit_code, 2);
  EXPECT_THAT(groups.err, HasSubstr("--group-prompt-tokens or --most-new-tokens"));
  EXPECT_EQ(train.exit_code, 2);
  EXPECT_THAT(train.err, HasSubstr("--sequence-length 256"));
}

TEST(Cli, ABenchmarkMayBeShort) {
  SKIP_WITHOUT_DATA("models/tinystories-656k");
  const std::string model = testing::TestData("models/tinystories-656k");

  const ProgramResult batch = RunProgram(
      "tandem", {"bench", "generate", "--model", model, "--dtype", "float32", "--repeats", "1",
                 "--batch", "2", "--prompt-tokens", "4", "--new-tokens", "2"});
  const ProgramResult groups = RunProgram("tandem", {"bench",
                                                     "generate",
                                                     "--model",
                                                     model,
                                                     "--dtype",
                                                     "float32",
                                                     "--repeats",
                                                     "1",
                                                     "--workload",
                                                     "grpo",
                                                     "--prompts",
                                                     "2",
                                                     "--samples",
                                                     "2",
                                                     "--group-prompt-tokens",
                                                     "4",
                                                     "--least-new-tokens",
                                                     "2",
                                                     "--most-new-tokens",
                                                     "3"});
  const ProgramResult episodes = RunProgram("tandem", {"bench",
                                                       "generate",
                                                       "--model",
                                                       model,
                                                       "--dtype",
                                                       "float32",
                                                       "--repeats",
                                                       "1",
                                                       "--workload",
                                                       "episodes",
                                                       "--episodes",
                                                       "3",
                                                       "--turns",
                                                       "2",
                                                       "--episode-prompt-tokens",
                                                       "20",
                                                       "--turn-tokens",
                                                       "4",
                                                       "--observation-tokens",
                                                       "1",
                                                       "--environment-ms",
                                                       "1",
                                                       "--batch-cap",
                                                       "2"});

  EXPECT_EQ(batch.exit_code, 0) << batch.err;
  EXPECT_EQ(groups.exit_code, 0) << groups.err;
  ASSERT_EQ(episodes.exit_code, 0) << episodes.err;
  // The second turn's prompt of 25 tokens finds what the first one computed: all but the last of its 24.
  EXPECT_EQ(nlohmann::json::parse(episodes.out)["cached_prompt_ratio"], 23.0 / 25.0);
}

TEST(Cli, RewardAnswersEachLine) {
  const TempFolder folder;
  const std::string input =
      folder.Write("in.jsonl", R"({"completion": "so 1,000 eggs.", "answer": "10*100\n#### 1000"})"
                               "\n"
                               R"({"completion": "12", "answer": "123", "finish_reason": "length"})"
                               "\n");

  const ProgramResult gsm8k = RunProgram("tandem", {"reward", "--name", "gsm8k", "--input", input});
  const ProgramResult prefix =
      RunProgram("tandem", {"reward", "--name", "prefix_match", "--input", input});

  EXPECT_EQ(gsm8k.out, "{\"reward\":1.0}\n{\"reward\":0.0}\n");
  EXPECT_THAT(prefix.out, ::testing::EndsWith("{\"reward\":0.5}\n"));
  EXPECT_EQ(RunProgram("tandem", {"reward", "--name", "gsm8", "--input", input}).exit_code, 2);
}

TEST(Cli, ARewardThatNeverMatchesSaysSo) {
  const TempFolder folder;
  const std::string input = folder.Write("in.jsonl", R"({"completion": "12", "answer": "3"})"
                                                     "\n"
                                                     R"({"completion": "5", "answer": "4"})"
                                                     "\n");

  const ProgramResult result =
      RunProgram("tandem", {"reward", "--name", "exact_match", "--input", input});

  EXPECT_EQ(result.out, "{\"reward\":0.0}\n{\"reward\":0.0}\n");
  EXPECT_THAT(result.err, HasSubstr("every one of the 2 rewards is 0"));
}

// Rows that `train` refuses are refused here, and those that it takes are taken.
TEST(Cli, ARewardReadsAnswersAsTrainDoes) {
  const TempFolder folder;
  const auto judge = [&](const std::vector<std::string>& args, const std::string& row) {
    const std::string input = folder.Write("in.jsonl", row + "\n");
    std::vector<std::string> all = {"reward", "--input", input};
    all.insert(all.end(), args.begin(), args.end());
    return RunProgram("tandem", all);
  };
  const std::vector<std::string> pattern = {"--name", "regex", "--pattern", "answer is (\\d+)"};

  const ProgramResult missing =
      judge({"--name", "exact_match"}, R"({"completion": "", "anwser": "5"})");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(missing.err, AllOf(HasSubstr("in.jsonl:1: expected the key 'answer'"),
                                 HasSubstr("did you mean 'anwser'?")));
  const ProgramResult none =
      judge({"--name", "exact_match"}, R"({"completion": "", "answer": null})");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("in.jsonl:1: answer: expected text, found null"));
  EXPECT_EQ(judge(pattern, R"({"completion": "The answer is 5"})").exit_code, 1);
  EXPECT_THAT(judge(pattern, R"({"completion": "The answer is 5", "answer": ""})").err,
              HasSubstr("in.jsonl:1: answer: expected text to compare group 1"));

  EXPECT_EQ(judge({"--name", "gsm8k"}, R"({"completion": "5", "answer": 5})").out,
            "{\"reward\":1.0}\n");
  EXPECT_EQ(judge({"--name", "regex", "--pattern", "\\d"}, R"({"completion": "5"})").out,
            "{\"reward\":1.0}\n");
}

TEST(Cli, TokenizeGivesIdsAndBack) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  const std::string text = folder.Write("text.jsonl", R"({"text": "1+2="})");
  const std::string ids = folder.Write("ids.jsonl", R"({"ids": [3, 12, 4, 13]})");

  EXPECT_EQ(RunProgram("tandem", {"tokenize", "--model", model, "--input", text}).out,
            "{\"ids\":[3,12,4,13]}\n");
  EXPECT_EQ(RunProgram("tandem", {"tokenize", "--decode", "--model", model, "--input", ids}).out,
            "{\"text\":\"1+2=\"}\n");
}

TEST(Cli, ABadLineIsNamed) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  const std::string input = folder.Write("in.jsonl", "{\"text\": \"1\"}\n{\"text\": 5}\n");

  const ProgramResult result =
      RunProgram("tandem", {"tokenize", "--model", model, "--input", input});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("in.jsonl:2"), HasSubstr("text")));
}

TEST(Cli, HealthSaysByItsExitStatusWhetherAProcessServes) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  auto rollout =
      rpc::ChildProcess::Start({.argv = {testing::BinaryPath("tandem-rollout"), "--set",
                                         "model.path=" + model, "--ready-file", folder / "ready"},
                                .log_path = folder / "rollout.log"});
  ASSERT_TRUE(rollout.ok()) << rollout.status();
  const auto address = rpc::WaitForReadyFile(folder / "ready", **rollout, absl::Seconds(60));
  ASSERT_TRUE(address.ok()) << address.status();
  const std::string endpoint = *address;

  const auto ask = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"health", "--endpoint", endpoint};
    args.insert(args.end(), more.begin(), more.end());
    return RunProgram("tandem", args);
  };
  EXPECT_EQ(ask({}).exit_code, 0);
  EXPECT_EQ(ask({"--service", "tandem.rollout.v1.WeightService", "--wait"}).exit_code, 0);
  // No version was committed.
  const ProgramResult stale = ask({"--service", "tandem.rollout.v1.RolloutService"});
  EXPECT_EQ(stale.exit_code, 1);
  EXPECT_THAT(stale.err, AllOf(HasSubstr(endpoint), HasSubstr("NOT_SERVING")));
  EXPECT_EQ(ask({"--service", "nobody"}).exit_code, 1);
  EXPECT_EQ(ask({"--timeout", "-1"}).exit_code, 2);
  (*rollout)->Stop(absl::Seconds(30));
  const ProgramResult gone = ask({"--wait", "--timeout", "0.5"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr(endpoint));
}

TEST(Cli, ARolloutServesItsModelUnderTheNamesOfItsFlags) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  auto rollout = rpc::ChildProcess::Start(
      {.argv = {testing::BinaryPath("tandem-rollout"), "--set", "model.path=" + model,
                "--openai-listen", "127.0.0.1:0", "--served-model-name", "policy,org/policy",
                "--served-model-name", "third", "--ready-file", folder / "ready"},
       .log_path = folder / "rollout.log"});
  ASSERT_TRUE(rollout.ok()) << rollout.status();
  const auto ready = rpc::WaitForReadyFile(folder / "ready", **rollout, absl::Seconds(60));
  ASSERT_TRUE(ready.ok()) << ready.status();
  const std::string log = testing::ReadWhole(folder / "rollout.log");
  static const std::regex endpoint("OpenAI-compatible endpoint.*address=127.0.0.1:([0-9]+)");
  std::smatch port;
  ASSERT_TRUE(std::regex_search(log, port, endpoint)) << log;

  const testing::HttpAnswer answer = testing::HttpGet(std::stoi(port[1]), "/v1/models");

  ASSERT_EQ(answer.code, 200) << answer.body;
  std::vector<std::string> names;
  const nlohmann::json models = nlohmann::json::parse(answer.body);
  for (const auto& served : models["data"]) names.push_back(served["id"]);
  EXPECT_THAT(names, ElementsAre("policy", "org/policy", "third"));
  (*rollout)->Stop(absl::Seconds(30));
}

}  // namespace
}  // namespace tandem
