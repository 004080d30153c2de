// Whole runs of algorithms that have parts of their own in driver and trainer: PPO with a critic,
// direct preference optimisation, ReMax, dynamic sampling.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestData;
using ::tandem::testing::TinyRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> With(std::vector<std::string> args, const std::vector<std::string>& set) {
  for (const std::string& assignment : set) {
    args.push_back("--set");
    args.push_back(assignment);
  }
  return args;
}

double MeanOf(const std::vector<json>& lines, size_t first, size_t count, const char* name) {
  double sum = 0;
  for (size_t i = first; i < first + count; ++i) sum += lines[i].at(name).get<double>();
  return sum / static_cast<double>(count);
}

TEST(Algorithms, PpoWithACriticRaisesTheReward) {
  SKIP_WITHOUT_DATA("models/digit-completion/config.json");
  const TempFolder folder;
  // The public model is untrained; a short warm-up teaches it the form of an answer. The reward is
  // for a first digit of 5 to 9, about one answer in two: learnt within few steps whatever the
  // seed.
  const std::string config = folder.Write("run.yaml", R"(
model: {path: )" + TestData("models/digit-completion") + R"(, dtype: float32}
data:
  train_files: [)" + TestData("tasks/digit-completion/train.jsonl") +
                                                          R"(]
  prompt_suffix: "<sep>"
  train_batch_size: 32
rollout: {max_tokens: 24, n: 4, kv_cache_megabytes: 64}
trainer: {ranks: 2, total_steps: 30}
actor: {optim: {lr: 1e-3}}
reward: {name: regex, pattern: "^ *[5-9]"}
run_dir: )" + (folder / "sft") + "\n");
  const ProgramResult warm = RunProgram("tandem", {"sft", "--local", "--config", config});
  ASSERT_EQ(warm.exit_code, 0) << warm.err;

  const ProgramResult result = RunProgram(
      "tandem",
      With({"train", "--local", "--config", config},
           {"model.path=" + (folder / "sft/model"), "run_dir=" + (folder / "ppo"),
            "trainer.total_steps=14", "trainer.critic_warmup=2", "algorithm.adv_estimator=gae",
            "algorithm.lam=0.95", "actor.ppo_epochs=2", "critic.optim.lr=1e-3"}),
      600);

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto metrics = JsonLines(ReadWhole(folder / "ppo/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 15u);  // step 0 has no reward
  // During the warm-up the critic alone learns.
  EXPECT_EQ(metrics[2]["training/policy_version"], 0);
  EXPECT_FALSE(metrics[2].contains("actor/pg_loss"));
  EXPECT_EQ(metrics[3]["training/policy_version"], 1);
  EXPECT_GT(MeanOf(metrics, 12, 3, "critic/score/mean"),
            MeanOf(metrics, 1, 3, "critic/score/mean") + 0.25);
  // The critic begins far from the returns and follows them while they rise.
  EXPECT_LT(MeanOf(metrics, 12, 3, "critic/vf_loss"),
            MeanOf(metrics, 1, 2, "critic/vf_loss") * 0.5);
  EXPECT_NEAR(MeanOf(metrics, 12, 3, "critic/values/mean"),
              MeanOf(metrics, 12, 3, "critic/returns/mean"), 0.15);
  for (const char* name :
       {"critic/vf_loss", "critic/vf_clipfrac", "critic/vpred_mean", "critic/vf_explained_var",
        "critic/values/mean", "critic/returns/mean", "critic/grad_norm"}) {
    EXPECT_TRUE(std::isfinite(metrics[14].at(name).get<double>())) << name;
  }
}

TEST(Algorithms, PreferenceOptimisationWidensTheMargin) {
  SKIP_WITHOUT_DATA("models/digit-completion/config.json");
  const TempFolder folder;
  // The right continuation against one with its last digit changed.
  std::string rows;
  for (const json& row : JsonLines(ReadWhole(TestData("tasks/digit-completion/train.jsonl")))) {
    const std::string right = row["answer"];
    if (right.empty()) continue;  // an answer of no digits has none to change
    std::string wrong = right;
    wrong.back() = wrong.back() == '1' ? '2' : '1';
    rows += json{{"prompt", row["prompt"]}, {"chosen", right}, {"rejected", wrong}}.dump() + "\n";
  }
  const std::string config = folder.Write("run.yaml", R"(
model: {path: )" + TestData("models/digit-completion") + R"(, dtype: float32}
data:
  train_files: [)" + folder.Write("pairs.jsonl", rows) + R"(]
  prompt_suffix: "<sep>"
  train_batch_size: 16
trainer: {ranks: 2, total_steps: 12}
actor: {optim: {lr: 1e-3}}
run_dir: )" + (folder / "run") + "\n");

  const ProgramResult result = RunProgram("tandem", {"dpo", "--local", "--config", config});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 12u);
  // The policy begins as the reference.
  EXPECT_NEAR(metrics[0]["train/loss"].get<double>(), std::log(2.0), 1e-6);
  EXPECT_NEAR(metrics[0]["rewards/margins"].get<double>(), 0, 1e-6);
  EXPECT_LT(MeanOf(metrics, 9, 3, "train/loss"), std::log(2.0) - 0.02);
  EXPECT_GT(MeanOf(metrics, 9, 3, "rewards/margins"), 0.05);
  EXPECT_GT(MeanOf(metrics, 9, 3, "rewards/accuracies"), 0.6);
}

TEST(Algorithms, ReMaxTrainsOnWhatASampleHasOverTheGreedyCompletion) {
  const TempFolder folder;

  const ProgramResult result =
      RunProgram("tandem", With(TinyRun(folder, "train"), {"algorithm.adv_estimator=remax"}));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto samples = JsonLines(ReadWhole(folder / "run/rollouts/1.jsonl"));
  ASSERT_EQ(samples.size(), 16u);
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].at("baseline_reward"), samples[i / 4 * 4].at("baseline_reward"));
  }
}

TEST(Algorithms, PartsThatTheConfigurationCombinesTrainTogether) {
  const std::vector<std::vector<std::string>> combinations = {
      {"actor.policy_loss.loss_mode=kl_cov", "actor.top_entropy_quantile=0.5"},
      {"actor.policy_loss.loss_mode=gmpo", "algorithm.adv_estimator=grpo_passk",
       "actor.use_kl_loss=true", "actor.kl_loss_type=k3+", "actor.use_bias_correction_kl=true",
       "trainer.mode=one_step_off"},
      {"algorithm.rollout_correction.bypass_mode=true",
       "algorithm.rollout_correction.loss_type=reinforce",
       "algorithm.rollout_correction.rollout_is=sequence", "trainer.mode=async"},
      {"actor.optim.name=muon", "actor.optim.muon.lr=2e-3",
       "algorithm.adv_estimator=tir_optimal_token_baseline"},
      {"algorithm.adv_estimator=gdpo", "reward.name=exact_match",
       "reward.rewards=[{name: prefix_match, weight: 2}, {name: exact_match}]"}};
  for (const std::vector<std::string>& combination : combinations) {
    SCOPED_TRACE(combination.front());
    const TempFolder folder;

    const ProgramResult result = RunProgram("tandem", With(TinyRun(folder, "train"), combination));

    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
    ASSERT_EQ(metrics.size(), 4u);
    for (size_t step = 1; step < metrics.size(); ++step) {
      EXPECT_EQ(metrics[step].at("actor/skipped_updates"), 0);
    }
    EXPECT_EQ(metrics[1].contains("actor/entropy_threshold"), &combination == &combinations[0]);
    // Old samples are corrected by default; the last configuration says otherwise.
    EXPECT_EQ(metrics[3].contains("rollout_corr/rollout_is_mean"),
              &combination == &combinations[1]);
  }
}

TEST(Algorithms, DynamicSamplingEndsWithAClearErrorWhereRewardsAreAlwaysEqual) {
  const TempFolder folder;

  // Nothing matches the pattern, so every reward is 0.
  const ProgramResult result = RunProgram(
      "tandem",
      With(TinyRun(folder, "train"),
           {"algorithm.filter_groups.enable=true", "algorithm.filter_groups.max_num_gen_batches=3",
            "data.gen_batch_size=2", "reward.name=regex", "reward.pattern=never"}));

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("step 1: expected 4 groups whose rewards differ"),
                    HasSubstr("found 0 in 3 batches"), HasSubstr("6 whose rewards are all equal")));
}

TEST(Algorithms, DynamicSamplingTrainsOnWholeBatchesInBothModes) {
  for (const char* mode : {"sync", "one_step_off"}) {
    const TempFolder folder;

    const ProgramResult result = RunProgram(
        "tandem", With(TinyRun(folder, "train"),
                       {std::string("trainer.mode=") + mode, "algorithm.filter_groups.enable=true",
                        "algorithm.filter_groups.max_num_gen_batches=0",
                        "reward.overlong_buffer.enable=true", "reward.overlong_buffer.len=3"}));

    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
    for (int step = 1; step <= 3; ++step) {
      const auto samples =
          JsonLines(ReadWhole(folder / "run/rollouts/" + std::to_string(step) + ".jsonl"));
      EXPECT_EQ(samples.size(), 16u);
      for (size_t g = 0; g < 4; ++g) {
        bool differs = false;
        for (size_t i = 1; i < 4; ++i) {
          differs |= samples[4 * g + i]["rewards"] != samples[4 * g]["rewards"];
        }
        EXPECT_TRUE(differs) << mode << ", step " << step << ", group " << g;
      }
      const json& line = metrics[step];
      EXPECT_EQ(line.at("train/num_gen_batches").get<double>() * 4,
                4 + line.at("rollout/filtered_groups").get<double>() +
                    line.at("rollout/surplus_groups").get<double>());
    }
  }
}

}  // namespace
}  // namespace tandem
