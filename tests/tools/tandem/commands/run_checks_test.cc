#include "tools/tandem/commands/run_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "common/config/load.h"
#include "common/status/status_macros.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tools/tandem/commands/teacher_checks.h"

namespace tandem::commands {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::WriteTinyModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunChecks : public ::testing::Test {
 protected:
  RunChecks() {
    spec_.vocab_size = 15;
    spec_.max_position_embeddings = 64;
    config_.mutable_data()->set_train_batch_size(2);
    config_.mutable_rollout()->set_max_tokens(8);
  }

  driver::PromptSource Source(const std::string& name, const std::string& rows) {
    auto source = driver::PromptSource::Load({folder_.Write(name, rows)}, config_.data(),
                                             /*tokenizer=*/nullptr, /*seed=*/0);
    EXPECT_OK(source.status());
    return *std::move(source);
  }

  absl::StatusOr<std::vector<std::string>> Check(bool reinforcement = true) {
    const driver::PromptSource train = Source("train.jsonl", train_);
    std::optional<driver::PromptSource> test;
    if (!test_.empty()) test = Source("test.jsonl", test_);
    return CheckRun({.config = config_,
                     .spec = spec_,
                     .tokenizer = tokenizer_.get(),
                     .train = train,
                     .test = test.has_value() ? &*test : nullptr,
                     .reinforcement = reinforcement,
                     .samples_test = samples_test_});
  }

  const TempFolder folder_;
  config::v1::RunConfig config_ = config::DefaultRunConfig();
  model::ModelSpec spec_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::string train_ =
      "{\"prompt\": [1, 2], \"answer\": \"5\"}\n{\"prompt\": [1, 3], \"answer\": \"5\"}\n";
  std::string test_;
  bool samples_test_ = true;
};

TEST_F(RunChecks, FindNothingInAnOrdinaryRun) {
  test_ = "{\"prompt\": [1, 4], \"answer\": \"5\"}\n";
  ASSERT_OK_AND_ASSIGN(const auto warnings, Check());
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(RunChecks, NameAStepWithoutRoomForAnImageThatIsComputedWhole) {
  model::VisionSpec& vision = spec_.vision.emplace();
  vision.merge_size = 1;
  vision.tiles.emplace().side = 16;
  config_.mutable_rollout()->set_max_num_seqs(8);
  config_.mutable_rollout()->set_max_num_batched_tokens(263);
  EXPECT_OK(Check().status());
  vision.images_see_ahead = true;
  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("rollout.max_num_batched_tokens: "),
                                      HasSubstr("expected 264"), HasSubstr("found 263"))));
  EXPECT_OK(Check(/*reinforcement=*/false).status());
  config_.mutable_rollout()->set_max_num_batched_tokens(264);
  EXPECT_OK(Check().status());
}

TEST_F(RunChecks, NameABatchThatRepeatsItsRows) {
  config_.mutable_data()->set_train_batch_size(16);
  train_ = "{\"prompt\": [1, 2], \"answer\": \"5\"}\n";

  ASSERT_OK_AND_ASSIGN(const auto warnings, Check());
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("data.train_batch_size: 16"),
                                          HasSubstr("there is 1 prompt;"), HasSubstr("16 times"))));
}

TEST_F(RunChecks, NameAGroupEstimatorWithoutGroups) {
  config_.mutable_rollout()->set_n(1);

  ASSERT_OK_AND_ASSIGN(const auto warnings, Check());
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("rollout.n: 1"), HasSubstr("grpo"))));
  ASSERT_OK_AND_ASSIGN(const auto supervised, Check(/*reinforcement=*/false));
  EXPECT_THAT(supervised, IsEmpty());
  for (const auto& [estimator, name] :
       {std::pair(config::v1::ADV_ESTIMATOR_GRPO_PASSK, "grpo_passk"),
        {config::v1::ADV_ESTIMATOR_OPTIMAL_TOKEN_BASELINE, "optimal_token_baseline"},
        {config::v1::ADV_ESTIMATOR_TIR_OPTIMAL_TOKEN_BASELINE, "tir_optimal_token_baseline"}}) {
    config_.mutable_algorithm()->set_adv_estimator(estimator);
    ASSERT_OK_AND_ASSIGN(const auto of_group, Check());
    EXPECT_THAT(of_group, ElementsAre(AllOf(HasSubstr("rollout.n: 1"), HasSubstr(name))));
  }
  config_.mutable_algorithm()->set_adv_estimator(config::v1::ADV_ESTIMATOR_REINFORCE_PLUS_PLUS);
  ASSERT_OK_AND_ASSIGN(const auto without_groups, Check());
  EXPECT_THAT(without_groups, IsEmpty());
}

TEST_F(RunChecks, RefuseGdpoWithoutSeveralRewards) {
  config_.mutable_algorithm()->set_adv_estimator(config::v1::ADV_ESTIMATOR_GDPO);

  EXPECT_THAT(Check().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reward.rewards")));
  EXPECT_OK(Check(/*reinforcement=*/false).status());
  config_.mutable_reward()->add_rewards()->set_name("exact_match");
  EXPECT_OK(Check().status());
}

TEST_F(RunChecks, NameCompletionsThatTheModelHasNoPositionsFor) {
  config_.mutable_rollout()->set_max_tokens(63);

  ASSERT_OK_AND_ASSIGN(const auto warnings, Check());
  EXPECT_THAT(warnings,
              ElementsAre(AllOf(HasSubstr("rollout.max_tokens"), HasSubstr("64 positions"),
                                HasSubstr("after 62 tokens, not 63"))));
}

TEST_F(RunChecks, IgnoreCompletionsThatNothingSamples) {
  config_.mutable_rollout()->set_max_tokens(63);
  test_ = "{\"prompt\": [1, 4], \"answer\": \"5\"}\n";

  ASSERT_OK_AND_ASSIGN(const auto sampled, Check(/*reinforcement=*/false));
  EXPECT_THAT(sampled, ElementsAre(HasSubstr("rollout.max_tokens")));
  samples_test_ = false;
  ASSERT_OK_AND_ASSIGN(const auto warnings, Check(/*reinforcement=*/false));
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(RunChecks, NameEvaluationsOnTrainingData) {
  test_ = "{\"prompt\": [1, 3], \"answer\": \"5\"}\n{\"prompt\": [1, 4], \"answer\": \"5\"}\n";

  ASSERT_OK_AND_ASSIGN(const auto warnings, Check());
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("data.test_files: 1 of 2 prompts is also in")));
}

TEST_F(RunChecks, RefuseTokensThatTheModelDoesNotHave) {
  train_ = "{\"prompt\": [1, 2], \"answer\": \"5\"}\n{\"prompt\": [1, 15], \"answer\": \"5\"}\n";

  EXPECT_THAT(Check().status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("data.train_files: "),
                                               HasSubstr("/train.jsonl: row 2 has token 15"),
                                               HasSubstr("ends with 14"))));
}

TEST_F(RunChecks, RefuseGivenSequencesThatTheModelCannotTake) {
  ASSERT_OK_AND_ASSIGN(tokenizer_, driver::LoadTokenizerIfAny(WriteTinyModel(folder_)));
  const std::string file =
      folder_.Write("first.jsonl", "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n");
  const std::string other = folder_.Write("other.jsonl",
                                          "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n"
                                          "{\"prompt\": \"1+1=\", \"answer\": \"222222\"}\n");
  ASSERT_OK_AND_ASSIGN(
      const driver::PromptSource source,
      driver::PromptSource::Load(
          {file, other}, config_.data(), tokenizer_.get(), /*seed=*/0,
          {.given = driver::RowNeeds::Given::kCompletion, .generation = false, .end_ids = {14}}));
  const auto check = [&] {
    return CheckRun({.config = config_,
                     .spec = spec_,
                     .tokenizer = tokenizer_.get(),
                     .train = source,
                     .test = nullptr,
                     .reinforcement = false,
                     .samples_test = false})
        .status();
  };
  EXPECT_OK(check());
  spec_.max_position_embeddings = 10;
  EXPECT_THAT(check(), StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("data.train_files: "),
                                      HasSubstr("/other.jsonl: row 2 has 11 tokens"),
                                      HasSubstr("10 positions"))));
  spec_.max_position_embeddings = 64;
  spec_.vocab_size = 14;
  EXPECT_THAT(check(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("/first.jsonl: row 1 has token 14")));
}

TEST_F(RunChecks, NameEmptyAnswersAndRefuseDataWithoutOthers) {
  train_ = "{\"prompt\": [1, 2], \"answer\": \"5\"}\n{\"prompt\": [1, 3], \"answer\": \" \"}\n";
  ASSERT_OK_AND_ASSIGN(const auto warnings, Check());
  EXPECT_THAT(warnings,
              ElementsAre(AllOf(HasSubstr("data.train_files: 1 of 2 rows has an empty answer"),
                                HasSubstr("/train.jsonl: row 2"))));

  train_ = "{\"prompt\": [1, 2], \"answer\": \"\"}\n";
  EXPECT_THAT(Check().status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("1 of 1 row has an empty answer"),
                                               HasSubstr("data.answer_key"))));
  config_.mutable_reward()->set_name("service");  // reads whole rows
  EXPECT_OK(Check().status());
}

TEST_F(RunChecks, NameEmptyCompletionsToTrainOn) {
  ASSERT_OK_AND_ASSIGN(tokenizer_, driver::LoadTokenizerIfAny(WriteTinyModel(folder_)));
  const auto check = [&](const std::string& rows) -> absl::StatusOr<std::vector<std::string>> {
    ASSIGN_OR_RETURN(
        const driver::PromptSource source,
        driver::PromptSource::Load(
            {folder_.Write("sft.jsonl", rows)}, config_.data(), tokenizer_.get(), /*seed=*/0,
            {.given = driver::RowNeeds::Given::kCompletion, .generation = false, .end_ids = {0}}));
    return CheckRun({.config = config_,
                     .spec = spec_,
                     .tokenizer = tokenizer_.get(),
                     .train = source,
                     .test = nullptr,
                     .reinforcement = false,
                     .samples_test = false});
  };
  const std::string full = "{\"prompt\": \"1\", \"answer\": \"2\"}\n";
  const std::string empty = "{\"prompt\": \"1\", \"answer\": \"\"}\n";

  ASSERT_OK_AND_ASSIGN(const auto some, check(full + empty));
  EXPECT_THAT(some,
              ElementsAre(AllOf(HasSubstr("data.train_files: 1 of 2 rows has an empty completion"),
                                HasSubstr("/sft.jsonl: row 2"))));
  EXPECT_THAT(check(empty + empty).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 of 2 rows have an empty completion")));
}

TEST_F(RunChecks, NameATokenizerOfALargerVocabulary) {
  ASSERT_OK_AND_ASSIGN(tokenizer_, driver::LoadTokenizerIfAny(WriteTinyModel(folder_)));
  spec_.vocab_size = 12;

  ASSERT_OK_AND_ASSIGN(const auto warnings, Check());
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("the tokenizer has 15 tokens and the model 12")));
}

TEST_F(RunChecks, NameAnswersThatThePatternsGroupCannotEqual) {
  config_.mutable_reward()->set_name("regex");
  config_.mutable_reward()->set_pattern("answer is (\\d+)");
  train_ = "{\"prompt\": [1, 2], \"answer\": \"5\"}\n{\"prompt\": [1, 3], \"answer\": \"yyy\"}\n";

  ASSERT_OK_AND_ASSIGN(const auto warnings, Check());
  EXPECT_THAT(warnings,
              ElementsAre(AllOf(HasSubstr("reward.pattern: group 1 of answer is (\\d+) cannot be "
                                          "equal to the answer of 1 of 2 rows"),
                                HasSubstr("data.train_files, "), HasSubstr("/train.jsonl: row 2"),
                                HasSubstr("\"yyy\""))));
  config_.mutable_reward()->set_pattern("answer is (\\w+)");
  ASSERT_OK_AND_ASSIGN(const auto none, Check());
  EXPECT_THAT(none, IsEmpty());
}

TEST_F(RunChecks, RefuseABestMetricThatNothingMeasures) {
  test_ = "{\"prompt\": [1, 4], \"answer\": \"5\"}\n";
  const auto check = [&](const std::string& metric, bool reinforcement = true) {
    config_.mutable_trainer()->set_save_best(metric);
    return Check(reinforcement).status();
  };
  const auto refused = [](const std::string& problem) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("trainer.save_best: expected"), HasSubstr(problem)));
  };
  EXPECT_OK(check("val-core/exact_match/reward/mean@1"));
  EXPECT_OK(check("critic/rewards/mean"));
  EXPECT_THAT(check("val-core/exact_match/reward/mean@2"),
              refused("did you mean 'val-core/exact_match/reward/mean@1'?"));
  EXPECT_THAT(check("val/loss"), refused("found \"val/loss\""));  // of sft and dpo
  EXPECT_OK(check("val/loss", /*reinforcement=*/false));
  EXPECT_THAT(check("loss", false), refused("evaluations (val/loss, val-core/"));
  EXPECT_THAT(check("val/los", false), refused("did you mean 'val/loss'?"));
  EXPECT_THAT(check("val/accuracy", false), refused("val/loss"));  // of dpo
  test_.clear();
  EXPECT_THAT(check("val/loss", false), refused("none, without data.test_files"));
}

TEST(CheckProcesses, AllowsAsManyAsThereAreCoresAndNamesMore) {
  ASSERT_OK_AND_ASSIGN(const std::string quiet,
                       CheckProcesses({.trainer_ranks = 2, .rollout_ranks = 2, .cores = 2}, false));
  ASSERT_OK_AND_ASSIGN(const std::string more,
                       CheckProcesses({.trainer_ranks = 2, .rollout_ranks = 3, .cores = 2}, false));

  EXPECT_EQ(quiet, "");
  EXPECT_THAT(more, HasSubstr("rollout.replicas: --local starts 3 processes"));
}

TEST(CheckProcesses, RefusesSixtyFourRanksOnTwoCoresUnlessForced) {
  const LocalProcesses processes{.trainer_ranks = 64, .rollout_ranks = 1, .cores = 2};

  EXPECT_THAT(CheckProcesses(processes, false).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("trainer.ranks"), HasSubstr("64 processes"),
                             HasSubstr("2 cores"), HasSubstr("--force"))));
  EXPECT_OK(CheckProcesses(processes, true).status());
}

TEST_F(RunChecks, ATeacherAloneComparesNothing) {
  config_.mutable_rollout()->set_n(1);
  EXPECT_THAT(Check(), ::tandem::testing::IsOkAndHolds(ElementsAre(HasSubstr("rollout.n: 1"))));
  config_.mutable_teacher()->set_path("t");
  EXPECT_THAT(Check(), ::tandem::testing::IsOkAndHolds(IsEmpty()));
  config_.mutable_teacher()->set_reward_coef(1);
  EXPECT_THAT(Check(), ::tandem::testing::IsOkAndHolds(ElementsAre(HasSubstr("rollout.n: 1"))));
}

TEST(TeacherKeys, AreForTheCommandThatHasAUseForThem) {
  const auto check = [](const char* command, int64_t top_k, const config::Places& places = {}) {
    config::v1::RunConfig config = config::DefaultRunConfig();
    config.mutable_teacher()->set_path("t");
    config.mutable_teacher()->set_top_k(top_k);
    return CheckTeacherKeys(command, config, places);
  };
  const auto refused = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_OK(CheckTeacherKeys("dpo", config::DefaultRunConfig(), {}));
  EXPECT_OK(check("train", 0));
  EXPECT_OK(check("replay", 0));
  EXPECT_OK(check("sft", 4));
  EXPECT_THAT(check("train", 4, {{"teacher.top_k", "run.yaml:7"}}),
              refused("run.yaml:7: teacher.top_k: tandem train takes it with teacher.mode loss"));
  EXPECT_THAT(check("replay", 4),
              refused("teacher.top_k: tandem replay takes it with teacher.mode loss"));
  config::v1::RunConfig on_policy = config::DefaultRunConfig();
  on_policy.mutable_teacher()->set_path("t");
  on_policy.mutable_teacher()->set_top_k(4);
  on_policy.mutable_teacher()->set_mode(config::v1::DISTILLATION_MODE_LOSS);
  EXPECT_OK(CheckTeacherKeys("train", on_policy, {}));
  EXPECT_OK(CheckTeacherKeys("replay", on_policy, {}));
  EXPECT_THAT(CheckTeacherKeys("sft", on_policy, {}), refused("teacher.mode: is for tandem train"));
  EXPECT_THAT(check("sft", 0), refused("teacher.top_k: expected 1 to 1024"));
  EXPECT_THAT(check("dpo", 0), refused("teacher: tandem dpo learns from no teacher"));
  EXPECT_THAT(check("bench rl", 0), refused("teacher: tandem bench rl learns from no teacher"));
}

}  // namespace
}  // namespace tandem::commands
