#include "tools/tandem/driver/generation_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/config/load.h"
#include "tests/fakes/fake_sampler.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::FakeSampler;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Request = FakeSampler::Request;

// The reward of a completion is its text, a number.
class NumberRewarder : public Rewarder {
 public:
  absl::Status Judge(std::vector<Group>& groups) override {
    for (Group& group : groups) {
      if (before) {
        if (absl::Status status = before(group); !status.ok()) return status;
      }
      for (Completion* completion : group.judged()) {
        completion->score = completion->reward = std::stod(completion->text);
      }
      absl::MutexLock lock(&mu_);
      rows_.insert(group.prompt.row);
    }
    return absl::OkStatus();
  }

  // Waits until `count` rows have been judged; an error after a minute.
  absl::Status AwaitJudged(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&] {
      mu_.AssertHeld();
      return rows_.size() >= count;
    };
    if (mu_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1))) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("judged ", rows_.size(), " of ", count));
  }

  std::function<absl::Status(const Group&)> before;  // set before the loop begins

 private:
  absl::Mutex mu_;
  std::set<int64_t> rows_ ABSL_GUARDED_BY(mu_);
};

absl::Status KeepWaiting() { return absl::OkStatus(); }

std::vector<int64_t> Rows(const StepBatch& batch) {
  std::vector<int64_t> rows;
  for (const Group& group : batch.groups) rows.push_back(group.prompt.row);
  return rows;
}

class GenerationLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = config::DefaultRunConfig();
    config_.mutable_data()->set_train_batch_size(4);
    config_.mutable_rollout()->set_n(2);
    config_.mutable_rollout()->set_max_tokens(10);
    for (int i = 0; i < 100; ++i) {
      absl::StrAppend(&rows_, R"({"prompt": [1, )", i, R"(], "answer": "a"})", "\n");
    }
    prompts_.emplace(Source());
  }

  PromptSource Source() {
    config::v1::DataConfig data = config_.data();
    data.set_shuffle(false);
    auto source = PromptSource::Load({folder_.Write("rows.jsonl", rows_)}, data, nullptr, 0);
    return *std::move(source);
  }

  void SetAsync(int64_t batch_size, int64_t max_staleness) {
    config_.mutable_data()->set_train_batch_size(batch_size);
    config_.mutable_trainer()->set_mode(config::v1::TRAINING_MODE_ASYNC);
    config_.mutable_trainer()->set_max_staleness(max_staleness);
  }

  GenerationLoop::Options LoopOptions(int64_t first_step = 1) {
    return {.config = config_,
            .prompts = *prompts_,
            .rewarder = rewarder_,
            .sampler = sampler_.sampler(),
            .first_step = first_step,
            .num_batches = 100,
            .interrupted = [this] { return interrupted_.load(); }};
  }

  absl::StatusOr<StepBatch> Collect(int64_t step = 1) {
    GenerationLoop loop(LoopOptions(step));
    return loop.Take(step, /*version=*/0, KeepWaiting);
  }

  // Seeds of the samplers' requests.
  std::set<uint64_t> Seeds() const {
    std::set<uint64_t> seeds;
    for (const Request& request : sampler_.requests()) {
      seeds.insert(request.options.sampling.seed());
    }
    return seeds;
  }

  const TempFolder folder_;
  config::v1::RunConfig config_;
  std::string rows_;
  std::optional<PromptSource> prompts_;
  NumberRewarder rewarder_;
  FakeSampler sampler_;
  std::atomic<bool> interrupted_{false};
};

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

// Restores.

TEST_F(GenerationLoopTest, AResumedStepSamplesOnlyWhatIsMissing) {
  sampler_.holds = [](const Request& request) { return request.row() == 5 || request.row() == 6; };
  Ahead saved;
  {
    GenerationLoop loop(LoopOptions());
    ASSERT_OK(loop.Take(1, 0, KeepWaiting).status());
    loop.OpenStep();
    ASSERT_TRUE(sampler_.AwaitRequests(8));
    ASSERT_OK(rewarder_.AwaitJudged(6));
    saved = loop.Save(2, 1);
  }
  EXPECT_EQ(saved.prompt_position, 4);
  EXPECT_EQ(saved.generation.step(), 2);
  EXPECT_EQ(saved.generation.num_prompts(), 4);
  EXPECT_FALSE(saved.generation.is_continuous());
  EXPECT_EQ(saved.generation.done_places_size(), 0);
  ASSERT_EQ(saved.generation.groups_size(), 2);
  EXPECT_EQ(saved.generation.groups(0).place(), 0);
  EXPECT_EQ(saved.generation.groups(0).row(), 4);
  EXPECT_EQ(saved.generation.groups(1).place(), 3);
  EXPECT_EQ(saved.generation.groups(1).row(), 7);

  FakeSampler again;
  prompts_.emplace(Source());
  prompts_->Seek(saved.prompt_position);
  GenerationLoop::Options options = LoopOptions(/*first_step=*/2);
  options.sampler = again.sampler();
  options.restored = &saved.generation;
  GenerationLoop resumed(options);
  EXPECT_GE(resumed.Save(2, 1).generation.groups_size(), 2);  // no less than before
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, resumed.Take(2, 1, KeepWaiting));

  EXPECT_THAT(Rows(batch), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(batch.groups[0].completions[1].reward, 1);
  EXPECT_EQ(resumed.num_regenerated(), 2);
  const std::vector<Request> sampled = again.requests();
  const std::vector<Request> before = sampler_.requests();
  ASSERT_EQ(sampled.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {  // with the seeds that the earlier life gave them
    EXPECT_EQ(sampled[i].row(), 5 + static_cast<int64_t>(i));
    EXPECT_EQ(sampled[i].place, before[5 + i].place);
    EXPECT_EQ(sampled[i].options.sampling.seed(), before[5 + i].options.sampling.seed());
  }
}

TEST_F(GenerationLoopTest, AResumedRunOfModeAsyncKeepsWhatItHasAndSkipsWhatIsDone) {
  SetAsync(/*batch_size=*/2, /*max_staleness=*/2);
  sampler_.holds = [](const Request& request) { return request.row() == 0 || request.row() >= 3; };
  Ahead saved;
  {
    GenerationLoop loop(LoopOptions());
    ASSERT_TRUE(sampler_.AwaitRequests(6));
    ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, 7, KeepWaiting));
    EXPECT_THAT(Rows(batch), ElementsAre(1, 2));
    sampler_.Release(3);
    sampler_.Release(5);
    ASSERT_OK(rewarder_.AwaitJudged(4));
    saved = loop.Save(2, 8);
  }
  EXPECT_EQ(saved.prompt_position, 0);
  EXPECT_TRUE(saved.generation.is_continuous());
  EXPECT_EQ(saved.generation.policy_version(), 8);
  EXPECT_EQ(saved.generation.num_prompts(), 6);
  EXPECT_THAT(saved.generation.done_places(), ElementsAre(1, 2));
  ASSERT_EQ(saved.generation.groups_size(), 2);
  EXPECT_EQ(saved.generation.groups(0).row(), 3);
  EXPECT_EQ(saved.generation.groups(1).row(), 5);

  FakeSampler again;
  prompts_.emplace(Source());
  GenerationLoop::Options options = LoopOptions(/*first_step=*/2);
  options.sampler = again.sampler();
  options.num_batches = 3;
  options.restored = &saved.generation;
  options.policy_version = 12;  // a trainer that loads a checkpoint renumbers its versions
  GenerationLoop resumed(options);
  EXPECT_EQ(resumed.num_regenerated(), 2);
  std::map<int64_t, int64_t> shifts;  // by row
  for (int64_t step = 2; step <= 4; ++step) {
    ASSERT_OK_AND_ASSIGN(const StepBatch batch, resumed.Take(step, 12, KeepWaiting));
    for (const Group& group : batch.groups) shifts[group.prompt.row] = group.version_shift;
    resumed.OpenStep();
  }

  EXPECT_EQ(shifts, (std::map<int64_t, int64_t>{{0, 0}, {3, 4}, {4, 0}, {5, 4}, {6, 0}, {7, 0}}));
  std::vector<int64_t> sampled;
  for (const Request& request : again.requests()) sampled.push_back(request.row());
  EXPECT_THAT(sampled, UnorderedElementsAre(0, 4, 6, 7));
}

TEST_F(GenerationLoopTest, ARestoredBatchOfDynamicSamplingCountsWhatItLeftOut) {
  config_.mutable_algorithm()->mutable_filter_groups()->set_enable(true);
  sampler_.sample = [](const Request& request) {
    return request.row() % 2 == 0 ? FakeSampler::Pair("1", "1") : FakeSampler::Pair("0", "1");
  };
  sampler_.holds = [](const Request& request) { return request.row() == 7; };
  Ahead saved;
  {
    GenerationLoop loop(LoopOptions());
    ASSERT_TRUE(sampler_.AwaitRequests(8));
    ASSERT_OK(rewarder_.AwaitJudged(7));
    saved = loop.Save(1, 0);
  }
  EXPECT_EQ(saved.prompt_position, 0);
  EXPECT_EQ(saved.generation.num_prompts(), 8);
  EXPECT_EQ(saved.generation.groups_size(), 7);

  FakeSampler again;
  again.sample = sampler_.sample;
  prompts_.emplace(Source());
  GenerationLoop::Options options = LoopOptions();
  options.sampler = again.sampler();
  options.restored = &saved.generation;
  GenerationLoop resumed(options);
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, resumed.Take(1, 0, KeepWaiting));

  EXPECT_THAT(Rows(batch), ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(batch.metrics.at("train/num_gen_batches"), 2);
  EXPECT_EQ(batch.metrics.at("rollout/filtered_groups"), 4);
  EXPECT_EQ(resumed.num_regenerated(), 1);
  ASSERT_EQ(again.requests().size(), 1u);
  EXPECT_EQ(again.requests()[0].place, 7);
}

TEST_F(GenerationLoopTest, ACheckpointWithSamplesOfOtherRowsIsRefused) {
  v1::Generation saved;
  saved.set_step(1);
  saved.set_num_prompts(4);
  v1::FinishedGroup& group = *saved.add_groups();
  group.set_place(2);
  group.set_row(17);
  GenerationLoop::Options options = LoopOptions();
  options.restored = &saved;
  GenerationLoop loop(options);
  EXPECT_THAT(loop.Take(1, 0, KeepWaiting).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("samples of row 17 as prompt 2"), HasSubstr("row 2"))));
}

// Episodes of several turns.

// Asks again after the first completion, and adds a token of its own.
class TwoTurns : public Episode {
 public:
  explicit TwoTurns(const Prompt& prompt) : turn_{prompt.token_ids, ""} {}

  absl::StatusOr<std::optional<Turn>> NextTurn(std::optional<Completion> last) override {
    if (last.has_value()) completions_.push_back(*std::move(last));
    if (completions_.size() == 2) return std::nullopt;
    if (completions_.size() == 1) {
      if (completions_[0].text == "?") return absl::NotFoundError("no such tool");
      const std::vector<uint32_t>& said = completions_[0].token_ids;
      turn_.token_ids.insert(turn_.token_ids.end(), said.begin(), said.end());
      turn_.token_ids.push_back(99);
    }
    return turn_;
  }

  Completion Take() override { return std::move(completions_[1]); }

 private:
  Turn turn_;
  std::vector<Completion> completions_;
};

TEST_F(GenerationLoopTest, AnEpisodeOfTwoTurnsRunsThroughTheLoop) {
  config_.mutable_data()->set_train_batch_size(1);
  sampler_.sample = [](const Request& request) {
    if (request.options.sampling.n() == 2) return FakeSampler::Pair("0", "0");
    Group out;
    out.completions = {FakeSampler::Of("3")};
    return out;
  };
  GenerationLoop::Options options = LoopOptions();
  options.make_episode = [](const Prompt& prompt) { return std::make_unique<TwoTurns>(prompt); };
  GenerationLoop loop(options);

  ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, 0, KeepWaiting));

  ASSERT_EQ(batch.groups.size(), 1u);
  ASSERT_EQ(batch.groups[0].completions.size(), 2u);
  for (const Completion& completion : batch.groups[0].completions) {
    EXPECT_EQ(completion.reward, 3);  // of the second turn
  }
  // The first turn is one request; of the second there is one for each episode.
  const std::vector<Request> requests = sampler_.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].options.sampling.n(), 2);
  EXPECT_THAT(requests[0].turn.token_ids, ElementsAre(1, 0));
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(requests[i].options.sampling.n(), 1);
    EXPECT_THAT(requests[i].turn.token_ids, ElementsAre(1, 0, 7, 99));
  }
  EXPECT_EQ(Seeds().size(), 3u);
}

TEST_F(GenerationLoopTest, AnEpisodeThatFailsNamesTheRow) {
  sampler_.sample = [](const Request& request) {
    return FakeSampler::Pair(request.row() == 2 ? "?" : "0", "0");
  };
  sampler_.holds = [](const Request& request) { return request.options.sampling.n() == 1; };
  GenerationLoop::Options options = LoopOptions();
  options.make_episode = [](const Prompt& prompt) { return std::make_unique<TwoTurns>(prompt); };
  GenerationLoop loop(options);
  EXPECT_THAT(loop.Take(1, 0, KeepWaiting).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("no such tool"), HasSubstr("row 3 of the data set"))));
}

}  // namespace
}  // namespace tandem::driver
