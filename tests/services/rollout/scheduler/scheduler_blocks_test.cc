// Blocks of windows, and those of a sequence that ended or forked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/services/rollout/scheduler/scheduler_fixture.h"

namespace tandem::rollout {
namespace {

using model::Window;
using ::testing::ElementsAre;

TEST_F(SchedulerTest, BlocksThatLeaveTheWindowAreFreed) {
  Start(/*num_blocks=*/5, {.max_num_batched_tokens = 4}, {6});
  Sequence* a = Add(10);
  for (int i = 0; i < 400; ++i) {
    ASSERT_FALSE(Step().empty());
    ASSERT_LE(NumHeld(), 3) << "tokens " << a->num_computed;
  }
  EXPECT_GT(a->num_sampled(), 390);
  EXPECT_EQ(a->blocks.front(), model::kNoBlock);
  EXPECT_EQ(scheduler_->stats().num_preemptions, 0);
  scheduler_->Remove(a);
  EXPECT_EQ(NumHeld(), 0);
}

TEST_F(SchedulerTest, AGroupWithoutAWindowKeepsItsBlocks) {
  Start(/*num_blocks=*/100, {}, {0, 6});
  Sequence* a = Add(10);
  for (int i = 0; i < 200; ++i) Step();
  EXPECT_EQ(a->num_computed, 209);
  EXPECT_GE(NumHeld(), 53 + 2);
  EXPECT_LE(NumHeld(), 53 + 3);
}

TEST_F(SchedulerTest, AForkCopiesThePartlyFilledBlockOfEveryGroup) {
  Start(100, {}, {0, 6});
  Sequence* a = Add(14);
  Step();
  Sequence* b = Make(14);
  b->arrival = a->arrival;
  b->index = 1;
  b->tokens = a->tokens;
  scheduler_->Fork(*a, b);
  EXPECT_EQ(b->blocks, a->blocks);
  // Token 14 sees tokens 9 to 14: of the window's blocks two have gone.
  EXPECT_EQ(NumHeld(), 4 + 2);

  const std::vector<int32_t> before = a->blocks;
  const StepPlan plan = scheduler_->Plan();
  EXPECT_THAT(plan.block_copies,
              ElementsAre(std::pair(before[6], a->blocks[6]), std::pair(before[7], a->blocks[7])));
  EXPECT_EQ(b->blocks, before);
  scheduler_->Remove(a);
  scheduler_->Remove(b);
  EXPECT_EQ(NumHeld(), 0);
}

TEST_F(SchedulerTest, AKnownPromptIsFoundAlthoughItsBlocksHaveLeftTheWindow) {
  for (const std::vector<Window>& windows : {std::vector<Window>{6}, {0, 6}, {0, {6, true}}}) {
    Start(100, {}, windows);
    Sequence* a = Add(22, /*first_token=*/5);
    for (int i = 0; i < 30; ++i) Step();
    Sequence* b = Add(22, /*first_token=*/5);
    EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 2)));
    EXPECT_EQ(b->num_cached, 20);
    Step();
  }
}

TEST_F(SchedulerTest, ASequenceThatContinuesAnEndedOneComputesOnlyWhatIsNew) {
  for (const std::vector<Window>& windows :
       std::vector<std::vector<Window>>{{0}, {6}, {0, 6}, {0, 1, 9}, {0, {4, true}, {10, true}}}) {
    Start(100, {}, windows);
    Sequence* turn = Add(6);
    for (int i = 0; i < 5; ++i) Step();
    scheduler_->Remove(turn);  // 10 of its 11 tokens are computed: two blocks and half of one
    EXPECT_EQ(blocks_->num_free(), 100);

    Sequence* next = Continue(*turn, 2);
    scheduler_->Add(next);

    EXPECT_THAT(Step(), ElementsAre(std::pair(next, 3)));
    EXPECT_EQ(next->num_cached, 10);
    EXPECT_EQ(scheduler_->stats().num_cached_tokens, 10);
    scheduler_->Remove(next);
    EXPECT_EQ(blocks_->num_free(), 100);
  }
}

TEST_F(SchedulerTest, OneSequenceTakesOverTheLastBlock) {
  Start(100, {});
  Sequence* turn = Add(6);
  for (int i = 0; i < 5; ++i) Step();
  scheduler_->Remove(turn);
  Sequence* a = Continue(*turn, 2);
  Sequence* b = Continue(*turn, 2);
  scheduler_->Add(a);
  scheduler_->Add(b);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 3), std::pair(b, 5)));
  EXPECT_EQ(b->num_cached, 8);
}

TEST_F(SchedulerTest, OtherTokensDoNotFindTheLastBlock) {
  Start(100, {});
  Sequence* turn = Add(6);
  for (int i = 0; i < 5; ++i) Step();
  scheduler_->Remove(turn);
  Sequence* other = Continue(*turn, 2);
  other->tokens[9] = 99;
  scheduler_->Add(other);
  EXPECT_THAT(Step(), ElementsAre(std::pair(other, 5)));
}

TEST_F(SchedulerTest, OlderWeightsLeaveNoLastBlock) {
  Start(100, {});
  Sequence* kept = Add(6);
  Sequence* ended = Add(6);
  for (int i = 0; i < 5; ++i) Step();
  scheduler_->Remove(ended);
  kept->may_publish = false;
  blocks_->SetRoot(RootHash("m", 2, ""));
  scheduler_->Remove(kept);
  for (const Sequence* turn : {kept, ended}) {
    Sequence* next = Continue(*turn, 1);
    scheduler_->Add(next);
    EXPECT_THAT(Step(), ElementsAre(std::pair(next, 12)));
    scheduler_->Remove(next);
  }
}

TEST_F(SchedulerTest, AForkThatEndsLeavesTheSharedBlockToTheOther) {
  Start(100, {});
  Sequence* a = Add(6);
  Step();
  Sequence* b = Make(6);
  b->arrival = a->arrival;
  b->index = 1;
  b->tokens = a->tokens;
  scheduler_->Fork(*a, b);
  scheduler_->Remove(a);
  Sequence* next = Continue(*a, 1);
  scheduler_->Add(next);
  EXPECT_THAT(Step(), ElementsAre(std::pair(b, 1), std::pair(next, 4)));
}

}  // namespace
}  // namespace tandem::rollout
