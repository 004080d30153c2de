#include "tools/tandem/driver/step_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Group OfRow(int64_t row) {
  Group group;
  group.prompt.row = row;
  group.completions.emplace_back().reward = static_cast<double>(row);
  return group;
}

// Begins what there is room for. Returns how many.
int64_t BeginAll(StepQueue& queue, int64_t& next) {
  const int64_t count = queue.capacity();
  for (int64_t i = 0; i < count; ++i) queue.Begin(next++);
  return count;
}

std::vector<int64_t> TakenRows(StepQueue& queue) {
  const auto batch = queue.Take(0);
  std::vector<int64_t> rows;
  if (!batch.ok() || !batch->has_value()) return {-1};
  for (const Group& group : (*batch)->groups) rows.push_back(group.prompt.row);
  return rows;
}

TEST(StepQueue, TakesAStepOnceAllItsGroupsAreJudgedInTheOrderOfTheirPlaces) {
  StepQueue queue({.batch_size = 3, .gen_batch_size = 3});
  int64_t next = 0;
  EXPECT_EQ(BeginAll(queue, next), 3);
  EXPECT_EQ(queue.capacity(), 0);
  queue.Finish(2, OfRow(2), true);
  queue.Finish(0, OfRow(0), true);
  EXPECT_FALSE(queue.HasBatch());
  EXPECT_FALSE(queue.Take(0)->has_value());
  queue.Finish(1, OfRow(1), true);
  EXPECT_TRUE(queue.HasBatch());
  EXPECT_THAT(TakenRows(queue), ElementsAre(0, 1, 2));
}

TEST(StepQueue, TheNextStepHasRoomOnceItIsOpened) {
  StepQueue queue({.first_step = 4, .batch_size = 2, .gen_batch_size = 2});
  EXPECT_EQ(queue.Begin(6), (GroupSeed{.step = 4, .batch = 0, .place = 0}));
  EXPECT_EQ(queue.capacity(), 1);
  EXPECT_EQ(queue.Begin(7), (GroupSeed{.step = 4, .batch = 0, .place = 1}));
  queue.Finish(6, OfRow(6), true);
  queue.Finish(7, OfRow(7), true);
  EXPECT_THAT(TakenRows(queue), ElementsAre(6, 7));
  EXPECT_EQ(queue.capacity(), 0);
  EXPECT_FALSE(queue.HasBatch());
  queue.OpenStep();
  EXPECT_EQ(queue.capacity(), 2);
  EXPECT_EQ(queue.Begin(8), (GroupSeed{.step = 5, .batch = 0, .place = 0}));
}

TEST(StepQueue, AnotherBatchBeginsOnlyAfterTheOneBeforeAndItsPlacesGoOn) {
  StepQueue queue({.batch_size = 2, .gen_batch_size = 3, .filters = true});
  int64_t next = 10;
  EXPECT_EQ(BeginAll(queue, next), 3);
  queue.Finish(10, OfRow(10), false);
  queue.Finish(11, OfRow(11), true);
  EXPECT_EQ(queue.capacity(), 0);
  queue.Finish(12, OfRow(12), false);
  EXPECT_EQ(queue.capacity(), 3);
  EXPECT_EQ(queue.Begin(13), (GroupSeed{.step = 1, .batch = 1, .place = 3}));
  EXPECT_EQ(queue.capacity(), 2);
  EXPECT_EQ(queue.FirstOpen(14), 10);
  EXPECT_TRUE(queue.IsOpen(10));  // a checkpoint keeps what was left out, to count it again
  EXPECT_FALSE(queue.IsOpen(14));
}

TEST(StepQueue, DropsAndCountsTheSurplus) {
  StepQueue queue({.batch_size = 2, .gen_batch_size = 4, .filters = true});
  int64_t next = 0;
  BeginAll(queue, next);
  for (const int64_t place : {3, 2, 1, 0}) queue.Finish(place, OfRow(place), place != 1);
  ASSERT_OK_AND_ASSIGN(const auto batch, queue.Take(0));
  EXPECT_EQ(batch->groups.size(), 2u);
  EXPECT_EQ(batch->groups[1].prompt.row, 2);
  EXPECT_EQ(batch->metrics.at("rollout/surplus_groups"), 1);
  EXPECT_EQ(batch->metrics.at("rollout/filtered_groups"), 1);
  EXPECT_EQ(batch->metrics.at("rollout/judged_reward/mean"), 1.5);
}

TEST(StepQueue, ALostBatchEndsTheStep) {
  StepQueue queue({.first_step = 9, .batch_size = 2, .gen_batch_size = 2, .filters = true});
  int64_t next = 0;
  BeginAll(queue, next);
  queue.Finish(0, OfRow(0), true);
  queue.Abort(1);
  EXPECT_EQ(BeginAll(queue, next), 2);
  queue.Abort(2);
  queue.Abort(3);
  EXPECT_EQ(queue.capacity(), 0);
  EXPECT_TRUE(queue.HasBatch());
  EXPECT_THAT(queue.Take(0).status(), StatusIs(absl::StatusCode::kAborted, HasSubstr("step 9")));
}

}  // namespace
}  // namespace tandem::driver
