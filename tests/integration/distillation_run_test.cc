// Whole runs that learn from a teacher: on-policy, with a teacher that dies, replayed, and off-policy
// from its likeliest tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <thread>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"
#include "tests/support/test_data.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::Eventually;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProcessesOf;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestData;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = "models/digit-completion";

class DistillationRun : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DATA(std::string(kModel) + "/config.json");
    config_ = folder_.Write("run.yaml", R"(
model: {path: )" + TestData(kModel) + R"(, dtype: float32}
data:
  train_files: [)" + TestData("tasks/digit-completion/train.jsonl") +
                                            R"(]
  prompt_suffix: "<sep>"
  train_batch_size: 16
rollout: {max_tokens: 12, n: 2, kv_cache_megabytes: 64}
trainer: {ranks: 1, total_steps: 8}
actor: {optim: {lr: 1e-3}}
reward: {name: prefix_match}
)");
  }

  std::vector<std::string> Args(const std::string& command, const std::vector<std::string>& set) {
    std::vector<std::string> args = {command, "--local", "--config", config_};
    for (const std::string& assignment : set) args.insert(args.end(), {"--set", assignment});
    return args;
  }

  std::vector<json> MetricsOf(const std::string& run) {
    return JsonLines(ReadWhole(folder_ / (run + "/metrics.jsonl")));
  }

  // Moves the public model away from itself.
  void WarmUp() {
    const ProgramResult warm = RunProgram(
        "tandem", Args("sft", {"run_dir=" + (folder_ / "sft"), "trainer.total_steps=12"}));
    ASSERT_EQ(warm.exit_code, 0) << warm.err;
  }

  const TempFolder folder_;
  std::string config_;
};

TEST_F(DistillationRun, APolicyIsItsOwnTeacherBitForBit) {
  const ProgramResult result = RunProgram(
      "tandem", Args("train", {"run_dir=" + (folder_ / "run"), "teacher.path=" + TestData(kModel),
                               "numerics=exact", "trainer.total_steps=1"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json step = MetricsOf("run").back();
  EXPECT_EQ(step["actor/teacher_kl"], 0);
  EXPECT_EQ(step["critic/advantages/max"], 0);
  EXPECT_EQ(step["training/rollout_probs_diff_max"], 0);
  EXPECT_GT(step["timing_s/teacher"], 0);
}

TEST_F(DistillationRun, ThePolicyApproachesATeacherThatDiesMeanwhileAndTheRecordReplays) {
  WarmUp();
  const std::vector<std::string> set = {"model.path=" + (folder_ / "sft/model"),
                                        "run_dir=" + (folder_ / "run"),
                                        "teacher.path=" + TestData(kModel)};
  std::thread killer([this] {
    EXPECT_TRUE(Eventually([&] { return MetricsOf("run").size() >= 3; }, 200));
    for (const pid_t pid : ProcessesOf("tandem-rollout", folder_ / "run/logs/teacher-0.ready")) {
      EXPECT_EQ(kill(pid, SIGKILL), 0);
    }
  });
  const ProgramResult result = RunProgram("tandem", Args("train", set), 400);
  killer.join();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("teacher-0"));
  const std::vector<json> metrics = MetricsOf("run");
  ASSERT_EQ(metrics.size(), 9u);  // and that of step 0
  EXPECT_GT(metrics[1]["actor/teacher_kl"], 0.05);
  EXPECT_LT(metrics[8]["actor/teacher_kl"].get<double>(),
            metrics[1]["actor/teacher_kl"].get<double>() * 0.7);
  EXPECT_TRUE(metrics[8].contains("critic/score/mean"));

  const std::vector<json> rows = JsonLines(ReadWhole(folder_ / "run/rollouts/1.jsonl"));
  ASSERT_EQ(rows.size(), 32u);
  for (const json& row : rows) {
    EXPECT_EQ(row["teacher_logprobs"].size(), row["response_ids"].size());
  }
  std::vector<std::string> replay =
      Args("replay", {"model.path=" + (folder_ / "sft/model"), "run_dir=" + (folder_ / "again"),
                      "teacher.path=" + TestData(kModel)});
  replay.insert(replay.end(), {"--input", folder_ / "run/rollouts/1.jsonl"});
  const ProgramResult again = RunProgram("tandem", replay);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const json repeated = MetricsOf("again").front();
  for (const char* name : {"actor/teacher_kl", "actor/loss", "actor/grad_norm"}) {
    EXPECT_NEAR(repeated[name].get<double>(), metrics[1][name].get<double>(), 1e-5) << name;
  }
}

TEST_F(DistillationRun, TheLikeliestTokensWhereThePolicySamplesAreLearntAndReplayed) {
  WarmUp();
  const std::vector<std::string> set = {"model.path=" + (folder_ / "sft/model"),
                                        "teacher.path=" + TestData(kModel), "teacher.mode=loss",
                                        "teacher.top_k=16"};
  const auto with_run = [&](const std::string& run) {
    std::vector<std::string> out = set;
    out.push_back("run_dir=" + (folder_ / run));
    return out;
  };
  const ProgramResult result = RunProgram("tandem", Args("train", with_run("run")), 400);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> metrics = MetricsOf("run");
  ASSERT_EQ(metrics.size(), 9u);  // and that of step 0
  EXPECT_NEAR(metrics[1]["actor/teacher_mass"].get<double>(), 1.0, 1e-4);
  EXPECT_GT(metrics[1]["actor/teacher_loss"], 0.05);
  EXPECT_LT(metrics[8]["actor/teacher_loss"].get<double>(),
            metrics[1]["actor/teacher_loss"].get<double>() * 0.7);

  const std::vector<json> rows = JsonLines(ReadWhole(folder_ / "run/rollouts/1.jsonl"));
  ASSERT_EQ(rows.size(), 32u);
  for (const json& row : rows) {
    ASSERT_EQ(row["teacher_top_ids"].size(), row["response_ids"].size());
    EXPECT_EQ(row["teacher_top_ids"][0].size(), 16u);
  }
  std::vector<std::string> replay = Args("replay", with_run("again"));
  replay.insert(replay.end(), {"--input", folder_ / "run/rollouts/1.jsonl"});
  const ProgramResult again = RunProgram("tandem", replay);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const json repeated = MetricsOf("again").front();
  for (const char* name : {"actor/teacher_loss", "actor/loss", "actor/grad_norm"}) {
    EXPECT_NEAR(repeated[name].get<double>(), metrics[1][name].get<double>(), 1e-5) << name;
  }
}

TEST_F(DistillationRun, TheLikeliestTokensOfATeacherAreLearnt) {
  WarmUp();
  const ProgramResult result = RunProgram(
      "tandem", Args("sft", {"model.path=" + (folder_ / "sft/model"),
                             "run_dir=" + (folder_ / "run"), "teacher.path=" + TestData(kModel),
                             "teacher.top_k=16", "teacher.timeout_s=90"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> metrics = MetricsOf("run");
  ASSERT_EQ(metrics.size(), 8u);
  // All 16 tokens: the loss is the forward KL.
  EXPECT_NEAR(metrics[0]["train/teacher_mass"].get<double>(), 1.0, 1e-4);
  EXPECT_GT(metrics[0]["train/loss"], 0.05);
  EXPECT_LT(metrics[7]["train/loss"].get<double>(), metrics[0]["train/loss"].get<double>() * 0.5);
  EXPECT_GT(metrics[7]["train/loss"], 0);
  EXPECT_GT(metrics[7]["timing_s/teacher"], 0);
}

TEST_F(DistillationRun, ATeachersFolderNeedsLocalProcesses) {
  std::vector<std::string> args =
      Args("train", {"run_dir=" + (folder_ / "run"), "teacher.path=" + TestData(kModel),
                     "trainer.endpoint=127.0.0.1:1", "rollout.endpoints=['127.0.0.1:1']"});
  std::erase(args, "--local");
  const ProgramResult result = RunProgram("tandem", args);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("teacher.endpoint: expected HOST:PORT"), HasSubstr("--local")));
}

TEST_F(DistillationRun, ATeacherOfOtherTokensIsRefusedBeforeAnythingStarts) {
  SKIP_WITHOUT_DATA("models/tinystories-656k/config.json");
  const ProgramResult result =
      RunProgram("tandem", Args("train", {"run_dir=" + (folder_ / "run"),
                                          "teacher.path=" + TestData("models/tinystories-656k")}));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("teacher.path"), HasSubstr("vocabulary of 16 tokens"),
                                HasSubstr("found ")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

}  // namespace
}  // namespace tandem
