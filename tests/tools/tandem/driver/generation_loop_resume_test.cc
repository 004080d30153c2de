// What a generation loop saves in a checkpoint, and what it does with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/tools/tandem/driver/generation_loop_fixture.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::FakeSampler;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Request = FakeSampler::Request;

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

// Of four groups, an interrupt aborts that of row 2; returns what a checkpoint then holds.
Ahead SaveAfterInterrupt(FakeSampler& sampler, NumberRewarder& rewarder,
                         std::atomic<bool>& interrupted, GenerationLoop::Options options) {
  GenerationLoop loop(std::move(options));
  EXPECT_TRUE(sampler.AwaitRequests(4));
  EXPECT_OK(rewarder.AwaitJudged(3));
  interrupted = true;
  sampler.Release(2);
  EXPECT_THAT(loop.Take(1, 0, [] { return absl::CancelledError("interrupted"); }).status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
  return loop.Save(1, 0);
}

TEST_F(GenerationLoopTest, AnInterruptKeepsThePromptsOfTheGroupsThatItAborts) {
  sampler_.holds = [](const Request& request) { return request.row() == 2 || request.row() >= 4; };
  sampler_.sample = [](const Request& request) {
    Group out = FakeSampler::Pair("0", "1");
    if (request.row() == 2) out.completions[0].finish_reason = common::v1::FINISH_REASON_ABORTED;
    return out;
  };

  const Ahead saved = SaveAfterInterrupt(sampler_, rewarder_, interrupted_, LoopOptions());

  EXPECT_EQ(saved.prompt_position, 0);
  EXPECT_EQ(saved.generation.num_prompts(), 4);
  EXPECT_EQ(saved.generation.groups_size(), 3);
}

TEST_F(GenerationLoopTest, AnInterruptKeepsThePromptsThatItAbortsInModeAsyncToo) {
  SetAsync(/*batch_size=*/4, /*max_staleness=*/1);
  sampler_.holds = [](const Request& request) { return request.row() == 2 || request.row() >= 4; };
  sampler_.sample = [](const Request& request) {
    Group out = FakeSampler::Pair("0", "1");
    if (request.row() == 2) out.completions[0].finish_reason = common::v1::FINISH_REASON_ABORTED;
    return out;
  };

  const Ahead saved = SaveAfterInterrupt(sampler_, rewarder_, interrupted_, LoopOptions());

  EXPECT_EQ(saved.prompt_position, 0);
  EXPECT_EQ(saved.generation.done_places_size(), 0);
  EXPECT_EQ(saved.generation.groups_size(), 3);
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

}  // namespace
}  // namespace tandem::driver
