// Who gives way, and whose turn it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/services/rollout/scheduler/scheduler_fixture.h"

namespace tandem::rollout {
namespace {

using ::testing::ElementsAre;

TEST_F(SchedulerTest, TheLatestArrivalGivesWayWhenBlocksRunOut) {
  Start(4, {});
  Sequence* a = Add(8);
  Sequence* b = Add(8);
  Step();
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1)));
  EXPECT_TRUE(b->blocks.empty());
  EXPECT_TRUE(scheduler_->waiting().contains(b));
  EXPECT_EQ(scheduler_->stats().num_preemptions, 1);
  scheduler_->Remove(a);
  // Its prompt is still in the cache, but for the token that was sampled.
  const auto step = Step();
  ASSERT_EQ(step.size(), 1u);
  EXPECT_EQ(step[0].first, b);
}

TEST_F(SchedulerTest, HigherPrioritiesAreAdmittedFirstAndGiveWayLast) {
  Start(4, {});
  Sequence* low = Add(8);
  Sequence* high = Make(8);
  high->priority = 1;
  scheduler_->Add(high);
  EXPECT_THAT(Step(), ElementsAre(std::pair(high, 8), std::pair(low, 8)));
  // A block for each next token is one too many.
  EXPECT_THAT(Step(), ElementsAre(std::pair(high, 1)));
  EXPECT_TRUE(scheduler_->waiting().contains(low));
}

TEST_F(SchedulerTest, ClientsTakeTurnsHoweverManyRequestsEachHas) {
  Start(1000, {.max_num_seqs = 1});
  std::vector<Sequence*> many;
  for (int i = 0; i < 6; ++i) {
    many.push_back(Make(10));
    many.back()->client = 1;
    scheduler_->Add(many.back());
  }
  Step();
  scheduler_->Remove(many[0]);
  Sequence* few = Make(10);
  few->client = 2;
  scheduler_->Add(few);
  // Both clients begin equal; the first has the earlier request.
  EXPECT_THAT(Step(), ElementsAre(std::pair(many[1], 10)));
  scheduler_->Remove(many[1]);
  EXPECT_THAT(Step(), ElementsAre(std::pair(few, 10)));
  scheduler_->Remove(few);
  EXPECT_THAT(Step(), ElementsAre(std::pair(many[2], 10)));
}

TEST_F(SchedulerTest, AGroupThatHasEverythingGivesWayToOthers) {
  Start(1000, {.max_num_seqs = 16});
  Sequence* group = Make(6);
  group->num_samples = 40;
  scheduler_->Add(group);
  Step();
  group->num_samples = 1;
  for (int32_t i = 1; i < 40; ++i) {
    Sequence* copy = Make(6);
    copy->arrival = group->arrival;
    copy->index = i;
    copy->tokens = group->tokens;
    scheduler_->Fork(*group, copy);
  }
  // Alone it has all places.
  EXPECT_EQ(Step().size(), 16u);
  EXPECT_EQ(scheduler_->waiting().size(), 24u);
  Sequence* small = Add(5);
  const auto step = Step();
  EXPECT_TRUE(scheduler_->running().contains(small));
  EXPECT_EQ(scheduler_->running().size(), 16u);
  EXPECT_TRUE(scheduler_->running().contains(group));
  scheduler_->Remove(small);
  // What gave way comes back.
  EXPECT_EQ(Step().size(), 16u);
}

TEST_F(SchedulerTest, ALongPromptLeavesTokensToOthers) {
  Start(1000, {.max_num_batched_tokens = 16});
  Sequence* huge = Add(400);
  EXPECT_THAT(Step(), ElementsAre(std::pair(huge, 16)));
  Sequence* small = Add(4);
  EXPECT_THAT(Step(), ElementsAre(std::pair(huge, 12), std::pair(small, 4)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(small, 1), std::pair(huge, 15)));
}

TEST_F(SchedulerTest, TheRequestWithMostGivesWayWhenBlocksRunOut) {
  Start(12, {});
  Sequence* group = Make(4);
  scheduler_->Add(group);
  Step();
  for (int32_t i = 1; i < 8; ++i) {
    Sequence* copy = Make(4);
    copy->arrival = group->arrival;
    copy->index = i;
    copy->tokens = group->tokens;
    scheduler_->Fork(*group, copy);
  }
  Sequence* small = Add(4);
  int steps = 0;
  while (small->num_sampled() < 6 && ++steps < 40) Step();
  EXPECT_EQ(small->num_sampled(), 6);
  EXPECT_TRUE(scheduler_->running().contains(group));
  EXPECT_GT(scheduler_->stats().num_preemptions, 0);
}

}  // namespace
}  // namespace tandem::rollout
