// What `tandem train` and `replay` say and refuse before a run starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
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

}  // namespace
}  // namespace tandem
