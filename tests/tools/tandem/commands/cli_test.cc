// The program from outside: exit codes, streams, and what a mistake is answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <regex>
#include <sstream>

#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "nlohmann/json.hpp"
#include "tests/support/addition_data.h"
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
using ::testing::Not;

TEST(Cli, HelpExitsWithZeroAndABadFlagWithTwo) {
  EXPECT_EQ(RunProgram("tandem", {"--help"}).exit_code, 0);
  EXPECT_EQ(RunProgram("tandem", {"train", "--help"}).exit_code, 0);
  EXPECT_EQ(RunProgram("tandem", {"train", "--no-such-flag"}).exit_code, 2);
  EXPECT_EQ(RunProgram("tandem", {"no-such-command"}).exit_code, 2);
  EXPECT_EQ(RunProgram("tandem", {}).exit_code, 2);
}

TEST(Cli, HelpStatesEachFlagsDefault) {
  const std::string train = RunProgram("tandem", {"train", "--help"}).out;
  const std::string view = RunProgram("tandem", {"view", "--help"}).out;
  const std::string health = RunProgram("tandem", {"health", "--help"}).out;
  const std::string generate = RunProgram("tandem", {"generate", "--help"}).out;
  const std::string bench = RunProgram("tandem", {"bench", "serve", "--help"}).out;
  const std::string tandem = RunProgram("tandem", {"--help"}).out;

  EXPECT_THAT(view, AllOf(HasSubstr("[0 - 65535]=8700"), HasSubstr("--host TEXT=127.0.0.1")));
  EXPECT_THAT(health, HasSubstr("--timeout FLOAT:POSITIVE=5"));
  EXPECT_THAT(generate, AllOf(HasSubstr("--top-k INT=0"), HasSubstr("--top-p FLOAT=1"),
                              HasSubstr("--max-tokens INT=128")));
  EXPECT_THAT(bench, HasSubstr("[1 - 65536]=500"));
  EXPECT_THAT(tandem, AllOf(HasSubstr("--max-calls-per-client INT:POSITIVE=4096"),
                            HasSubstr("{auto,always,never}=auto")));
  for (const std::string& help : {train, generate, tandem})
    EXPECT_THAT(help, Not(HasSubstr("=[]")));
  for (const char* service : {"tandem-trainer", "tandem-rollout"}) {
    EXPECT_THAT(
        RunProgram(service, {"--help"}).out,
        AllOf(HasSubstr("--listen TEXT=127.0.0.1:0"),
              HasSubstr("--max-calls-per-client INT:POSITIVE=4096"), Not(HasSubstr("=[]"))));
  }
}

TEST(Cli, AQuietRunSaysWhereItsResultsAreAndWhatIsWrong) {
  const TempFolder folder;
  std::vector<std::string> args = testing::TinyRun(folder, "train");
  // Fewer prompts than a batch has.
  args.insert(args.end(), {"--quiet", "--set", "data.train_batch_size=26"});

  const ProgramResult result = RunProgram("tandem", args);

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = testing::JsonLines(result.out);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(lines[0]["model"], folder / "run/model");
  std::istringstream messages(result.err);
  int num_warnings = 0;
  for (std::string line; std::getline(messages, line);) {
    EXPECT_THAT(line, HasSubstr("warning"));
    num_warnings += line.find("data.train_batch_size: 26") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(num_warnings, 1) << result.err;
}

TEST(Cli, AQuietReplayPrintsOneLine) {
  const TempFolder folder;
  ASSERT_EQ(RunProgram("tandem", testing::TinyRun(folder, "train")).exit_code, 0);
  const std::vector<std::string> args = {"replay",   "--local",
                                         "--config", folder / "run/config.yaml",
                                         "--input",  folder / "run/rollouts",
                                         "--set",    "run_dir=" + (folder / "again"),
                                         "--quiet"};

  const ProgramResult result = RunProgram("tandem", args);

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const auto lines = testing::JsonLines(result.out);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(lines[0]["model"], folder / "again/model");
}

TEST(Cli, AnUnknownCommandIsNamedWithTheNearest) {
  const ProgramResult near = RunProgram("tandem", {"trian", "--config", "run.yaml"});
  const ProgramResult far = RunProgram("tandem", {"frobnicate"});
  const ProgramResult bench = RunProgram("tandem", {"bench", "generat"});

  EXPECT_EQ(near.exit_code, 2);
  EXPECT_THAT(near.err, HasSubstr("no command 'trian'; did you mean 'train'?"));
  EXPECT_EQ(far.exit_code, 2);
  EXPECT_THAT(far.err, AllOf(HasSubstr("no command 'frobnicate'; the commands are"),
                             HasSubstr("train, sft, dpo")));
  EXPECT_EQ(bench.exit_code, 2);
  EXPECT_THAT(bench.err, HasSubstr("no command 'generat'; did you mean 'generate'?"));
}

TEST(Cli, ASecondValueOfAFlagIsNamedWithItsCure) {
  for (const char* command : {"status", "sync"}) {
    const ProgramResult result =
        RunProgram("tandem", {command, "--rollout", "127.0.0.1:1", "127.0.0.1:2"});

    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("unexpected '127.0.0.1:2'"), HasSubstr("--rollout A --rollout B")));
  }
}

TEST(Cli, AnUnknownFlagIsNamedWithTheNearest) {
  const ProgramResult alone = RunProgram("tandem", {"--versoin"});
  const ProgramResult early = RunProgram("tandem", {"train", "--confg=run.yaml"});
  const ProgramResult valued = RunProgram("tandem", {"train", "--frobnicate", "3"});

  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("no flag '--versoin'; did you mean '--version'?"));
  EXPECT_EQ(early.exit_code, 2);
  EXPECT_THAT(early.err, HasSubstr("no flag '--confg'; did you mean '--config'?"));
  EXPECT_EQ(valued.exit_code, 2);
  EXPECT_THAT(valued.err, HasSubstr("no flag '--frobnicate'"));
}

TEST(Cli, AnUnexpectedWordIsNamedWithTheFlagBeforeIt) {
  const ProgramResult text =
      RunProgram("tandem", {"generate", "--model", "m", "--prompt", "Once", "upon"});
  const ProgramResult alone = RunProgram("tandem", {"train", "run.yaml"});

  EXPECT_EQ(text.exit_code, 2);
  EXPECT_THAT(text.err, AllOf(HasSubstr("unexpected 'upon': --prompt takes one value"),
                              HasSubstr("--prompt 'Once upon'"), Not(HasSubstr("--rollout"))));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("unexpected 'run.yaml'"));
}

TEST(Cli, WhatMayChangeIsNamedByKnownNamesAndGoesWithResume) {
  const ProgramResult unknown = RunProgram(
      "tandem", {"train", "--config", "run.yaml", "--resume", "--allow-changed=data,weather"});
  const ProgramResult alone =
      RunProgram("tandem", {"train", "--config", "run.yaml", "--allow-changed=data"});

  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("weather"), HasSubstr("tokenizer")));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--resume"));
}

TEST(Cli, AnUnknownRewardNamesFileLineAndTheKnownRewards) {
  const TempFolder folder;
  const std::string config =
      folder.Write("run.yaml", "model:\n  path: /nowhere\nreward:\n  name: exactmatch\n");

  const ProgramResult result = RunProgram("tandem", {"train", "--config", config});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("run.yaml:4: reward.name: expected one of"),
                                HasSubstr("exact_match, gsm8k, prefix_match, regex, service"),
                                HasSubstr("did you mean exact_match?")));
}

TEST(Cli, ATypoInAConfigNamesFileLineAndTheNearestKey) {
  const TempFolder folder;
  const std::string config =
      folder.Write("run.yaml", "model:\n  path: /nowhere\nactor:\n  optim:\n    lrr: 1e-3\n");

  const ProgramResult result = RunProgram("tandem", {"train", "--config", config});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("run.yaml:5"), HasSubstr("lrr"), HasSubstr("'lr'")));
  EXPECT_EQ(result.out, "");
}

TEST(Cli, DryRunChecksDataAndPrintsTheArithmetic) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  const std::string data = folder.Write("train.jsonl", R"({"prompt": "1+2=", "answer": "3"})");
  const std::string config = folder.Write("run.yaml", "data: {train_batch_size: 4}\n");

  const ProgramResult result = RunProgram(
      "tandem", {"train", "--config", config, "--set", "model.path=" + model, "--set",
                 "data.train_files=[" + data + "]", "--set", "rollout.n=8", "--dry-run"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("4 prompts x 8 samples = 32 samples"));
  EXPECT_THAT(result.err, HasSubstr(data + ": 1 row, prompt, answer\n"));
  EXPECT_THAT(result.err, HasSubstr("  prompt   1+2=\n  answer   3\n"));
}

TEST(Cli, RowsWithoutTheConfiguredAnswerAreRefusedBeforeTheRun) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  const std::string data = folder.Write("train.jsonl", R"({"prompt": "1+2=", "answer": "3"})");
  const std::string config = folder.Write("run.yaml", "data: {train_batch_size: 1}\n");
  for (const std::string command : {"train", "sft"}) {
    const ProgramResult result =
        RunProgram("tandem", {command, "--config", config, "--set", "model.path=" + model, "--set",
                              "data.train_files=[" + data + "]", "--set", "data.answer_key=anwser",
                              "--dry-run"});

    EXPECT_EQ(result.exit_code, 1) << command;
    EXPECT_THAT(result.err, AllOf(HasSubstr("train.jsonl:1"), HasSubstr("data.answer_key"),
                                  HasSubstr("did you mean 'answer'?")))
        << command;
  }
}

TEST(Cli, TheFirstLineCountsWhatThePlanCounts) {
  const TempFolder folder;
  const std::vector<std::string> args = testing::TinyRun(folder, "sft");
  nlohmann::json model = nlohmann::json::parse(testing::ReadWhole(folder / "model/config.json"));
  model["hidden_size"] = 128;
  model["intermediate_size"] = 512;
  folder.Write("model/config.json", model.dump());
  std::vector<std::string> lines;
  for (const std::string& setting :
       {std::string("actor.optim.name=adamw"), std::string("actor.optim.name=muon"),
        std::string("trainer.frozen_parameters=['*mlp*']")}) {
    std::vector<std::string> with = args;
    with.insert(with.end(), {"--dry-run", "--json", "--set", "trainer.ranks=1", "--set", setting});

    const ProgramResult result = RunProgram("tandem", with);

    ASSERT_EQ(result.exit_code, 0) << setting << ": " << result.err;
    const auto kinds = nlohmann::json::parse(result.out)["rank_memory"]["kinds"];
    const int64_t bytes = kinds["parameters"].get<int64_t>() + kinds["gradients"].get<int64_t>() +
                          kinds["optimizer"].get<int64_t>();
    char expected[64];
    std::snprintf(expected, sizeof(expected), "on 1 rank %.1f MiB of parameters",
                  static_cast<double>(bytes) / (1 << 20));
    EXPECT_THAT(result.err, HasSubstr(expected)) << setting;
    lines.push_back(expected);
  }
  EXPECT_NE(lines[1], lines[0]);
  EXPECT_NE(lines[2], lines[0]);
}

TEST(Cli, EpochsBecomeSteps) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  std::string rows;
  for (int i = 0; i < 10; ++i) rows += "{\"prompt\": \"1+2=\", \"answer\": \"3\"}\n";
  const std::string data = folder.Write("train.jsonl", rows);
  const std::string config =
      folder.Write("run.yaml", "data: {train_batch_size: 4}\ntrainer: {total_epochs: 2}\n");

  const ProgramResult result =
      RunProgram("tandem", {"sft", "--config", config, "--set", "model.path=" + model, "--set",
                            "data.train_files=[" + data + "]", "--dry-run"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("5 steps (2 epochs)"));
}

TEST(Cli, DryRunNamesSettingsThatAreProbablyNotMeant) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  const std::string data = folder.Write("train.jsonl", R"({"prompt": "1+2=", "answer": "3"})");
  const std::string config = folder.Write("run.yaml", "data: {train_batch_size: 16}\n");

  const ProgramResult result = RunProgram(
      "tandem", {"train", "--config", config, "--set", "model.path=" + model, "--set",
                 "data.train_files=[" + data + "]", "--set", "rollout.n=1", "--dry-run"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("warning  data.train_batch_size: 16, but there is 1 prompt;"),
                    HasSubstr("warning  rollout.n: 1"), HasSubstr("warning  rollout.max_tokens")));
}

TEST(Cli, ARunThatDoesNotFitIsRefusedUnlessForced) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  const std::string data = folder.Write("train.jsonl", R"({"prompt": "1+2=", "answer": "3"})");
  const std::string config = folder.Write("run.yaml", "data: {train_batch_size: 1}\n");
  std::vector<std::string> args = {"sft", "--local", "--config", config};
  for (const std::string& set :
       {"model.path=" + model, std::string("model.random_init=true"),
        "data.train_files=[" + data + "]", "run_dir=" + (folder / "run"),
        std::string("trainer.total_steps=1"), std::string("trainer.memory_megabytes=1")}) {
    args.insert(args.end(), {"--set", set});
  }

  const ProgramResult refused = RunProgram("tandem", args);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("a trainer rank needs"), HasSubstr("--force")));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));

  args.push_back("--force");
  const ProgramResult forced = RunProgram("tandem", args);
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_THAT(forced.err, HasSubstr("started all the same"));
}

TEST(Cli, AReplayThatDoesNotFitIsRefusedUnlessForced) {
  const TempFolder folder;
  std::vector<std::string> args = testing::TinyRun(folder, "replay");
  const std::string samples = folder.Write(
      "samples.jsonl",
      "{\"prompt_ids\": [2, 3], \"response_ids\": [4], \"rewards\": 1.0, \"group\": 0}\n"
      "{\"prompt_ids\": [2, 3], \"response_ids\": [5], \"rewards\": 0.0, \"group\": 0}\n");
  args.insert(args.end(), {"--input", samples, "--set", "trainer.ranks=1", "--set",
                           "trainer.memory_megabytes=1", "--set", "trainer.total_steps=1"});

  const ProgramResult refused = RunProgram("tandem", args);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("trainer.memory_megabytes"), HasSubstr("--force")));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));

  for (const char* key : {"trainer.total_epochs=2", "trainer.save_best=actor/loss"}) {
    std::vector<std::string> with_key = args;
    with_key.insert(with_key.end(), {"--force", "--set", key});
    const ProgramResult unknown = RunProgram("tandem", with_key);
    EXPECT_EQ(unknown.exit_code, 2) << key;
    EXPECT_THAT(unknown.err, AllOf(HasSubstr(std::string("--set ") + key), HasSubstr("replay")));
  }

  args.push_back("--force");
  const ProgramResult forced = RunProgram("tandem", args);
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_THAT(forced.err, HasSubstr("started all the same"));
}

TEST(Cli, ADryRunRefusesTheProcessesThatTheRunRefuses) {
  const TempFolder folder;
  std::vector<std::string> args = testing::TinyRun(folder, "sft");
  args.insert(args.end(),
              {"--dry-run", "--set", "trainer.ranks=1024", "--set", "trainer.test_freq=0"});

  const ProgramResult refused = RunProgram("tandem", args);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("trainer.ranks: --local starts 1024 processes"),
                                 HasSubstr("--force")));
  EXPECT_THAT(refused.out, Not(HasSubstr("fits")));
}

TEST(Cli, ARecordingWithAVersionThatIsNoneIsRefusedWithItsLine) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);
  for (const std::string versions : {"[[-1, 0, 2]]", "[[9007199254740992, 0, 2]]",
                                     "[[18446744073709551615, 0, 2]]", "[[1.5, 0, 2]]", "7"}) {
    const std::string recording = folder.Write(
        "recorded.jsonl",
        R"({"prompt_ids": [1], "response_ids": [2, 3], "rewards": 1, "policy_versions": )" +
            versions + "}\n");

    const ProgramResult result = RunProgram(
        "tandem", {"replay", "--local", "--input", recording, "--set", "model.path=" + model,
                   "--set", "run_dir=" + (folder / "run"), "--config",
                   folder.Write("run.yaml", "data: {train_batch_size: 1}\n")});

    EXPECT_EQ(result.exit_code, 1) << versions;
    EXPECT_THAT(result.err, AllOf(HasSubstr("recorded.jsonl:1"), HasSubstr("policy_versions")));
  }
}

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

TEST(Cli, TheLogThatAnErrorCitesIsThereAfterwards) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder);  // a configuration without weights
  const std::string input = folder.Write("in.jsonl", R"({"ids": [1, 2]})");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"generate", "--model", model, "--prompt", "1+2="},
        std::vector<std::string>{"score", "--model", model, "--input", input}}) {
    const ProgramResult result = RunProgram("tandem", args);

    EXPECT_EQ(result.exit_code, 1) << args[0];
    static const std::regex cited("its log, (/[^,]*/logs/rollout-0.log)");
    std::smatch log;
    ASSERT_TRUE(std::regex_search(result.err, log, cited)) << args[0] << ": " << result.err;
    EXPECT_TRUE(std::filesystem::exists(log[1].str())) << log[1];
    std::filesystem::remove_all(std::filesystem::path(log[1].str()).parent_path().parent_path());
  }
}

TEST(Cli, AnEndpointCannotScoreOnBothSides) {
  const TempFolder folder;
  const std::string input = folder.Write("in.jsonl", R"({"ids": [1, 2]})");

  const ProgramResult result = RunProgram(
      "tandem", {"score", "--endpoint", "127.0.0.1:1", "--side", "both", "--input", input});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("both sides"));
}

TEST(Cli, AMissingModelFolderIsNamedBeforeAnythingStarts) {
  const TempFolder folder;
  const std::string input = folder.Write("in.jsonl", R"({"ids": [1, 2]})");

  const ProgramResult result = RunProgram(
      "tandem", {"score", "--model", folder / "nothing", "--side", "rollout", "--input", input});

  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("nothing"));
}

}  // namespace
}  // namespace tandem
