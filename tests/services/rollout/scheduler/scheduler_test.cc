#include "services/rollout/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/services/rollout/scheduler/scheduler_fixture.h"

namespace tandem::rollout {
namespace {

using ::testing::ElementsAre;

TEST_F(SchedulerTest, APromptWaitsForItsImagesAndNobodyElseDoes) {
  Start(20, {.max_num_seqs = 4, .max_num_batched_tokens = 16});
  const model::ImagePlaces places;
  int64_t num_ready = 0;
  std::vector<const Sequence*> asked;
  scheduler_->SetNumReady([&](const Sequence& sequence) {
    asked.push_back(&sequence);
    return num_ready;
  });
  Sequence* const with_images = Make(10);
  with_images->places = &places;
  scheduler_->Add(with_images);
  Sequence* const text = Add(3);

  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 3)));
  EXPECT_TRUE(with_images->blocks.empty());
  EXPECT_TRUE(scheduler_->waiting().contains(with_images));
  num_ready = 6;
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1), std::pair(with_images, 6)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1)));  // its next image is not there
  num_ready = 10;
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1), std::pair(with_images, 4)));
  for (const Sequence* sequence : asked) EXPECT_EQ(sequence, with_images);
  EXPECT_EQ(scheduler_->stats().num_preemptions, 0);
}

TEST_F(SchedulerTest, AStepComputesAnImageWhole) {
  Start(40, {.max_num_seqs = 4, .max_num_batched_tokens = 8, .whole_images = true});
  // Tokens 3 to 9, and 11 and 12.
  const model::ImagePlaces places{.tokens = {3, 4, 5, 6, 7, 8, 9, 11, 12}};
  Sequence* const text = Add(2);
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 2)));
  Sequence* const with_images = Make(14);
  with_images->places = &places;
  scheduler_->Add(with_images);

  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1), std::pair(with_images, 3)));
  // The image takes what fairness would leave to the prompt that waits.
  Sequence* const other = Add(6);
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1), std::pair(with_images, 7)));
  EXPECT_THAT(Step(),
              ElementsAre(std::pair(text, 1), std::pair(with_images, 4), std::pair(other, 3)));
}

TEST_F(SchedulerTest, AnImageWithoutRoomInAStepWaitsForTheNext) {
  Start(40, {.max_num_seqs = 4, .max_num_batched_tokens = 8, .whole_images = true});
  const model::ImagePlaces places{.tokens = {0, 1, 2, 3, 4, 5}};
  Sequence* const text = Add(12);
  Sequence* const with_image = Make(8);
  with_image->places = &places;
  scheduler_->Add(with_image);

  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 8)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 4)));  // 4 tokens are left
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1), std::pair(with_image, 7)));
}

// A hit in the prefix cache may end within an image: what is left of it is computed at once.
TEST_F(SchedulerTest, AnImageWhoseFirstBlockIsKnownIsComputedFromThere) {
  Start(40, {.max_num_seqs = 4, .max_num_batched_tokens = 8, .whole_images = true});
  const model::ImagePlaces places{.tokens = {2, 3, 4, 5, 6, 7, 8, 9, 10}};
  Sequence* const first = Make(5, 100);
  scheduler_->Add(first);
  EXPECT_THAT(Step(), ElementsAre(std::pair(first, 5)));
  Sequence* const second = Make(14, 100);
  second->places = &places;
  scheduler_->Add(second);

  EXPECT_THAT(Step(), ElementsAre(std::pair(first, 1), std::pair(second, 7)));
  EXPECT_EQ(second->num_cached, 4);
}

TEST_F(SchedulerTest, DecodesFirstThenAdmitsInOrderOfArrival) {
  Start(100, {.max_num_seqs = 8, .max_num_batched_tokens = 10});
  Sequence* a = Add(6);
  Step();
  Sequence* b = Add(6);
  Sequence* c = Add(6);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 6), std::pair(c, 3)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 1), std::pair(c, 3)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 1), std::pair(c, 1)));
}

TEST_F(SchedulerTest, ALongPromptIsComputedInChunks) {
  Start(100, {.max_num_batched_tokens = 8});
  Sequence* a = Add(20);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 8)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 8)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 4)));
  EXPECT_EQ(a->num_sampled(), 1);
}

TEST_F(SchedulerTest, AGroupIsAdmittedWhenAllItsSamplesHaveRoom) {
  Start(100, {.max_num_seqs = 4});
  Sequence* a = Add(3);
  Step();
  Sequence* group = Make(3);
  group->num_samples = 4;
  scheduler_->Add(group);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1)));
  scheduler_->Remove(a);
  EXPECT_THAT(Step(), ElementsAre(std::pair(group, 3)));
}

TEST_F(SchedulerTest, AForkSharesBlocksAndTheFirstWriterCopiesTheLastOne) {
  Start(100, {});
  Sequence* a = Add(6);
  Step();
  Sequence* b = Make(6);
  b->arrival = a->arrival;
  b->index = 1;
  b->tokens.back() = a->tokens[5];
  b->tokens = a->tokens;
  scheduler_->Fork(*a, b);
  EXPECT_EQ(b->blocks, a->blocks);

  const std::vector<int32_t> before = a->blocks;
  const StepPlan plan = scheduler_->Plan();

  // One copy for two holders: the other goes on writing in place.
  EXPECT_THAT(plan.block_copies, ElementsAre(std::pair(before[1], a->blocks[1])));
  EXPECT_EQ(b->blocks, before);
  EXPECT_EQ(a->blocks[0], b->blocks[0]);
  EXPECT_NE(a->blocks[1], b->blocks[1]);
}

TEST_F(SchedulerTest, RunningSequencesHaveAStateEachAndPromptsAreNotShared) {
  Start(100, {.max_num_seqs = 4, .num_states = 4});
  Sequence* a = Add(10, /*first_token=*/5);
  Sequence* b = Add(10, /*first_token=*/5);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 10), std::pair(b, 10)));
  CheckStates(4);
  const int32_t state = a->state;
  scheduler_->Remove(a);
  Sequence* c = Add(10, /*first_token=*/5);
  EXPECT_THAT(Step(), ElementsAre(std::pair(b, 1), std::pair(c, 10)));
  EXPECT_EQ(c->state, state);
  EXPECT_EQ(c->num_cached, 0);
  EXPECT_EQ(scheduler_->RecomputeAll(), 2);
  CheckStates(4);
  Step();
  CheckStates(4);
}

TEST_F(SchedulerTest, AForkHasAStateOfItsOwnOrWaits) {
  Start(100, {.max_num_seqs = 4, .num_states = 2});
  Sequence* a = Add(6);
  Step();
  std::vector<Sequence*> copies;
  for (int32_t i = 1; i < 3; ++i) {
    Sequence* copy = copies.emplace_back(Make(6));
    copy->arrival = a->arrival;
    copy->index = i;
    copy->tokens = a->tokens;
    scheduler_->Fork(*a, copy);
  }
  CheckStates(2);
  EXPECT_EQ(copies[0]->blocks, a->blocks);
  EXPECT_TRUE(scheduler_->waiting().contains(copies[1]));
  EXPECT_TRUE(copies[1]->blocks.empty());
  scheduler_->Remove(a);
  EXPECT_THAT(Step(), ElementsAre(std::pair(copies[0], 1), std::pair(copies[1], 7)));
  CheckStates(2);
}

TEST_F(SchedulerTest, APromptThatIsKnownIsNotComputedAgain) {
  Start(100, {});
  Sequence* a = Add(10, /*first_token=*/5);
  Step();
  scheduler_->Remove(a);
  Sequence* b = Add(10, /*first_token=*/5);
  EXPECT_THAT(Step(), ElementsAre(std::pair(b, 2)));
  EXPECT_EQ(b->num_cached, 8);
}

TEST_F(SchedulerTest, EqualPromptsThatArriveTogetherAreComputedOnce) {
  Start(100, {});
  Sequence* a = Add(10, /*first_token=*/5);
  Sequence* b = Add(10, /*first_token=*/5);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 10)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 2)));
}

TEST_F(SchedulerTest, RemovedSequencesHoldNothing) {
  Start(10, {});
  Sequence* a = Add(9);
  Sequence* b = Add(9);
  Step();
  scheduler_->Remove(a);
  scheduler_->Remove(b);
  scheduler_->Remove(b);
  EXPECT_EQ(blocks_->num_free(), 10);
  EXPECT_TRUE(Step().empty());
}

TEST_F(SchedulerTest, RecomputingKeepsTokensAndOrder) {
  Start(100, {});
  Sequence* a = Add(9);
  Sequence* b = Add(5);
  Step();
  EXPECT_EQ(scheduler_->RecomputeAll(), 2);
  EXPECT_EQ(blocks_->num_free(), 100);
  blocks_->SetRoot(RootHash("m", 2, ""));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 10), std::pair(b, 6)));
}

}  // namespace
}  // namespace tandem::rollout
