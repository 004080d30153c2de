#include "tools/tandem/driver/generation_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/tandem/driver/generation_loop_fixture.h"
#include "tools/tandem/driver/group_filter.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::FakeSampler;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Request = FakeSampler::Request;

TEST_F(GenerationLoopTest, JudgesTheGroupsOfOneBatch) {
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  ASSERT_EQ(batch.groups.size(), 4u);
  EXPECT_EQ(batch.groups[0].completions[1].reward, 1);
  EXPECT_EQ(batch.metrics.at("rollout/judged_reward/mean"), 0.5);
  EXPECT_EQ(batch.metrics.count("train/num_gen_batches"), 0u);
  EXPECT_FALSE(batch.groups[0].baseline.has_value());
}

TEST_F(GenerationLoopTest, DropsAGroupThatWasAborted) {
  sampler_.sample = [](const Request& request) {
    Group out = FakeSampler::Pair("0", "1");
    if (request.row() == 2) out.completions[1].finish_reason = common::v1::FINISH_REASON_ABORTED;
    return out;
  };
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  EXPECT_THAT(Rows(batch), ElementsAre(0, 1, 3));
  EXPECT_EQ(batch.metrics.at("rollout/dropped_groups"), 1);
}

TEST_F(GenerationLoopTest, FailsIfEveryGroupWasAborted) {
  sampler_.sample = [](const Request&) {
    Group out = FakeSampler::Pair("0", "1");
    out.completions[0].finish_reason = common::v1::FINISH_REASON_ABORTED;
    return out;
  };
  EXPECT_THAT(Collect(3).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("step 3: every group was aborted")));
}

TEST_F(GenerationLoopTest, DropsAndCountsAGroupThatAJudgeFailedFor) {
  config_.mutable_reward()->set_name("judge");
  rewarder_.fails = [](const Group& group) { return group.prompt.row % 4 == 1; };
  GenerationLoop loop(LoopOptions());
  for (const int64_t first : {0, 4}) {
    ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, /*version=*/0, KeepWaiting));
    EXPECT_THAT(Rows(batch), ElementsAre(first, first + 2, first + 3));
    EXPECT_EQ(batch.metrics.at("reward/failed_judgements"), 1);
    EXPECT_EQ(batch.metrics.at("reward/dropped_groups"), 1);
    EXPECT_EQ(batch.metrics.at("rollout/judged_reward/mean"), 0.5);  // no zeros
    loop.OpenStep();
  }
}

TEST_F(GenerationLoopTest, ARunOfModeAsyncSamplesOthersForGroupsThatAJudgeFailedFor) {
  SetAsync(/*batch_size=*/4, /*max_staleness=*/1);
  config_.mutable_reward()->set_name("judge");
  rewarder_.fails = [](const Group& group) { return group.prompt.row % 2 == 1; };
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  EXPECT_THAT(Rows(batch), ElementsAre(0, 2, 4, 6));
}

TEST_F(GenerationLoopTest, FailsWithTheJudgesErrorIfItFailsForAWholeStep) {
  rewarder_.fails = [](const Group&) { return true; };
  EXPECT_THAT(
      Collect(3).status(),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("the judge is away; no reward for any completion of 4 groups"),
                     HasSubstr("step 3"))));
}

TEST_F(GenerationLoopTest, GoesOnUntilEnoughGroupsDifferAndDropsTheSurplus) {
  config_.mutable_algorithm()->mutable_filter_groups()->set_enable(true);
  config_.mutable_data()->set_gen_batch_size(6);
  // Of six rows, three differ.
  sampler_.sample = [](const Request& request) {
    return request.row() % 2 == 0 ? FakeSampler::Pair("1", "1") : FakeSampler::Pair("0", "1");
  };

  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());

  EXPECT_EQ(sampler_.requests().size(), 12u);
  EXPECT_EQ(Seeds().size(), 2u);  // the second batch is sampled with another seed
  EXPECT_THAT(Rows(batch), ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(batch.metrics.at("train/num_gen_batches"), 2);
  EXPECT_EQ(batch.metrics.at("rollout/filtered_groups"), 6);
  EXPECT_EQ(batch.metrics.at("rollout/surplus_groups"), 2);
  EXPECT_EQ(batch.metrics.at("rollout/judged_reward/mean"), 0.75);  // over all twelve
}

TEST_F(GenerationLoopTest, SaysWhatToDoWhereRewardsAreAlwaysEqual) {
  auto* filter = config_.mutable_algorithm()->mutable_filter_groups();
  filter->set_enable(true);
  filter->set_max_num_gen_batches(3);
  sampler_.sample = [](const Request& request) {
    return request.row() == 5 ? FakeSampler::Pair("0", "1") : FakeSampler::Pair("1", "1");
  };

  EXPECT_THAT(Collect(7).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("step 7: expected 4 groups whose rewards differ"),
                             HasSubstr("found 1 in 3 batches"), HasSubstr("max_num_gen_batches"),
                             HasSubstr("11 whose rewards are all equal"), HasSubstr("rollout.n"))));
  EXPECT_EQ(sampler_.requests().size(), 12u);
}

TEST_F(GenerationLoopTest, EndsAnUnlimitedSearchWhenInterrupted) {
  auto* filter = config_.mutable_algorithm()->mutable_filter_groups();
  filter->set_enable(true);
  filter->set_max_num_gen_batches(0);
  sampler_.sample = [this](const Request& request) {
    interrupted_ = request.row() >= 59;  // the last of fifteen batches
    return FakeSampler::Pair("1", "1");
  };
  EXPECT_THAT(Collect().status(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
  EXPECT_EQ(sampler_.requests().size(), 60u);
}

TEST_F(GenerationLoopTest, FiltersByTheMetricThatIsAskedFor) {
  auto* filter = config_.mutable_algorithm()->mutable_filter_groups();
  filter->set_enable(true);
  filter->set_max_num_gen_batches(1);
  auto* buffer = config_.mutable_reward()->mutable_overlong_buffer();
  buffer->set_enable(true);
  buffer->set_len(4);
  // Equal scores, and one completion is long.
  sampler_.sample = [](const Request&) {
    Group out = FakeSampler::Pair("1", "1");
    out.completions[1] = FakeSampler::Of("1", 9);
    return out;
  };

  filter->set_metric(config::v1::FILTER_METRIC_SEQ_REWARD);
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  EXPECT_EQ(batch.groups[0].completions[1].reward, 0.25);
  EXPECT_EQ(batch.groups[0].completions[1].score, 1);
  EXPECT_EQ(batch.metrics.at("reward/overlong_penalty/mean"), -0.375);
  EXPECT_EQ(batch.metrics.at("reward/overlong_ratio"), 0.5);

  filter->set_metric(config::v1::FILTER_METRIC_ACC);
  EXPECT_THAT(Collect().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found 0")));
}

TEST(GroupFilterTest, ComparesThePartsThatGdpoLearnsFrom) {
  Group group;
  for (const double right : {1.0, 0.0}) {
    Completion& completion = group.completions.emplace_back();
    completion.part_scores = {{"right", right}, {"short", 1 - right}};
    completion.score = completion.reward = 1;
  }
  const auto metric = config::v1::FILTER_METRIC_SEQ_REWARD;
  EXPECT_TRUE(Differs(group, metric, config::v1::ADV_ESTIMATOR_GDPO));
  EXPECT_FALSE(Differs(group, metric, config::v1::ADV_ESTIMATOR_GRPO));
  group.completions[1].part_scores = group.completions[0].part_scores;
  EXPECT_FALSE(Differs(group, metric, config::v1::ADV_ESTIMATOR_GDPO));
}

TEST_F(GenerationLoopTest, JudgesAGreedyCompletionForReMax) {
  config_.mutable_algorithm()->set_adv_estimator(config::v1::ADV_ESTIMATOR_REMAX);
  sampler_.sample = [](const Request& request) {
    Group out = FakeSampler::Pair("0", "1");
    EXPECT_EQ(request.options.baseline->temperature(), 0);
    EXPECT_EQ(request.options.baseline->n(), 1);
    out.baseline = FakeSampler::Of("0.5");
    return out;
  };
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  EXPECT_EQ(sampler_.requests().size(), 4u);  // asked for together with the group
  for (const Group& group : batch.groups) {
    ASSERT_TRUE(group.baseline.has_value());
    EXPECT_EQ(group.baseline->reward, 0.5);
  }
  EXPECT_EQ(batch.metrics.at("rollout/judged_reward/mean"), 0.5);
}

TEST_F(GenerationLoopTest, ABatchHasTheOrderOfItsPromptsWhateverEndsFirst) {
  sampler_.holds = [](const Request&) { return true; };
  GenerationLoop loop(LoopOptions());
  ASSERT_TRUE(sampler_.AwaitRequests(4));
  for (const int64_t row : {3, 1, 2, 0}) sampler_.Release(row);
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, 0, KeepWaiting));
  EXPECT_THAT(Rows(batch), ElementsAre(0, 1, 2, 3));
}

TEST_F(GenerationLoopTest, SeedsFollowFromTheStepAndThePlaceInEveryMode) {
  config_.set_seed(5);
  const auto seeds_and_places = [this] {
    FakeSampler sampler;
    prompts_.emplace(Source());
    GenerationLoop::Options options = LoopOptions();
    options.sampler = sampler.sampler();
    GenerationLoop loop(options);
    for (int64_t step = 1; step <= 3; ++step) {
      EXPECT_OK(loop.Take(step, step - 1, KeepWaiting).status());
      if (step < 3) loop.OpenStep();
    }
    std::vector<std::pair<uint64_t, int64_t>> out;
    for (const Request& request : sampler.requests()) {
      out.emplace_back(request.options.sampling.seed(), request.place);
    }
    out.resize(12);  // in mode async the next step's may have begun
    return out;
  };

  const auto sync = seeds_and_places();
  SetAsync(/*batch_size=*/4, /*max_staleness=*/1);
  const auto async = seeds_and_places();

  EXPECT_EQ(sync, async);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(sync[i].first, 5 * 0x9E3779B97F4A7C15ULL + 1 + static_cast<uint64_t>(i / 4));
    EXPECT_EQ(sync[i].second, i % 4);
  }
}

TEST_F(GenerationLoopTest, ASlowRewardHoldsUpNothingButItsOwnGroup) {
  SetAsync(/*batch_size=*/2, /*max_staleness=*/1);
  absl::Notification release;
  // The reward of row 0 comes once the other three of the first batches are judged, another batch
  // has been taken and further groups have begun and been judged.
  rewarder_.before = [&](const Group& group) -> absl::Status {
    if (group.prompt.row != 0 || release.WaitForNotificationWithTimeout(absl::Minutes(1))) {
      return absl::OkStatus();
    }
    return absl::DeadlineExceededError("the slow reward held up the others");
  };
  GenerationLoop loop(LoopOptions());

  ASSERT_OK(rewarder_.AwaitJudged(3));
  ASSERT_OK_AND_ASSIGN(const StepBatch first, loop.Take(1, 0, KeepWaiting));
  loop.OpenStep();
  ASSERT_TRUE(sampler_.AwaitRequests(6));
  ASSERT_OK(rewarder_.AwaitJudged(5));
  release.Notify();
  ASSERT_OK(rewarder_.AwaitJudged(6));
  ASSERT_OK_AND_ASSIGN(const StepBatch second, loop.Take(2, 1, KeepWaiting));

  EXPECT_EQ(first.groups.size(), 2u);
  EXPECT_THAT(Rows(first), Not(Contains(0)));
  EXPECT_EQ(second.groups.size(), 2u);
}

TEST_F(GenerationLoopTest, ASlowRewardOfOneGroupOverlapsTheOthersOfItsStep) {
  rewarder_.before = [this](const Group& group) {
    return group.prompt.row == 0 ? rewarder_.AwaitJudged(3) : absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  EXPECT_THAT(Rows(batch), ElementsAre(0, 1, 2, 3));
}

TEST_F(GenerationLoopTest, AStepBeginsOnlyOnceItIsOpened) {
  GenerationLoop loop(LoopOptions());
  ASSERT_OK(loop.Take(1, 0, KeepWaiting).status());
  EXPECT_EQ(sampler_.requests().size(), 4u);
  // Nothing begins, so the wait ends when `look` says so.
  EXPECT_THAT(loop.Take(2, 0, [] { return absl::CancelledError("enough"); }).status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  EXPECT_EQ(sampler_.requests().size(), 4u);
  loop.OpenStep();
  ASSERT_OK_AND_ASSIGN(const StepBatch second, loop.Take(2, 0, KeepWaiting));
  EXPECT_THAT(Rows(second), ElementsAre(4, 5, 6, 7));
}

TEST_F(GenerationLoopTest, AnErrorFailsTheStepThatNeedsTheGroup) {
  sampler_.sample = [](const Request& request) -> absl::StatusOr<Group> {
    if (request.row() == 6) return absl::UnavailableError("the rollout is lost");
    return FakeSampler::Pair("0", "1");
  };
  GenerationLoop loop(LoopOptions());
  ASSERT_OK(loop.Take(1, 0, KeepWaiting).status());
  loop.OpenStep();
  EXPECT_OK(loop.WaitForBatch(KeepWaiting));
  EXPECT_THAT(loop.Take(2, 0, KeepWaiting).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("the rollout is lost"), HasSubstr("step 2"))));
}

TEST_F(GenerationLoopTest, AnErrorOfTheRewardFailsTheStep) {
  rewarder_.before = [](const Group& group) {
    return group.prompt.row == 1 ? absl::InvalidArgumentError("row 2: no number")
                                 : absl::OkStatus();
  };
  EXPECT_THAT(Collect().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 2: no number")));
}

TEST_F(GenerationLoopTest, AnExceptionOfTheRewardFailsTheStepAndNamesTheRow) {
  rewarder_.before = [](const Group& group) {
    if (group.prompt.row == 1) throw std::runtime_error("invalid UTF-8 byte");
    return absl::OkStatus();
  };
  EXPECT_THAT(Collect().status(),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("row 2"), HasSubstr("invalid UTF-8 byte"))));
}

TEST_F(GenerationLoopTest, EndsWhileGroupsAreSampledAndJudged) {
  sampler_.holds = [](const Request& request) { return request.row() % 2 == 1; };
  absl::Notification judging;
  rewarder_.before = [&judging](const Group& group) {
    if (group.prompt.row == 0) judging.Notify();
    return absl::OkStatus();
  };
  {
    GenerationLoop loop(LoopOptions());
    ASSERT_TRUE(sampler_.AwaitRequests(4));
    ASSERT_TRUE(judging.WaitForNotificationWithTimeout(absl::Minutes(1)));
  }
  EXPECT_EQ(sampler_.requests().size(), 4u);
}

TEST_F(GenerationLoopTest, AnAbortedGroupEndsARunOfModeAsync) {
  SetAsync(/*batch_size=*/2, /*max_staleness=*/1);
  sampler_.sample = [](const Request&) {
    Group out = FakeSampler::Pair("0", "1");
    out.completions[0].finish_reason = common::v1::FINISH_REASON_ABORTED;
    return out;
  };
  EXPECT_THAT(Collect().status(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("aborted")));
}

}  // namespace
}  // namespace tandem::driver
