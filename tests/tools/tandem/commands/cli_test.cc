// The program from outside: exit codes, streams, and what a mistake is answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::WriteTinyModel;
using ::testing::AllOf;
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
