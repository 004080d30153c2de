#include "tools/tandem/driver/group_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem::driver {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Group Sampled(int64_t row, std::vector<int64_t> versions) {
  Group group;
  group.prompt.row = row;
  Completion& completion = group.completions.emplace_back();
  for (const int64_t version : versions) {
    completion.version_spans.emplace_back().set_policy_version(version);
  }
  return group;
}

std::vector<int64_t> Rows(const std::vector<Group>& groups) {
  std::vector<int64_t> rows;
  for (const Group& group : groups) rows.push_back(group.prompt.row);
  return rows;
}

// Begins as many as it may and finishes them with samples of `version`. Answers how many.
int64_t Fill(GroupQueue& queue, int64_t& next, int64_t version) {
  int64_t count = 0;
  for (; queue.capacity() > 0; ++count) {
    queue.Begin(next);
    queue.Finish(next, Sampled(next, {version}));
    ++next;
  }
  return count;
}

TEST(GroupQueue, WithoutStalenessSamplingAndTrainingTakeTurns) {
  GroupQueue queue({.batch_size = 4, .max_staleness = 0, .num_batches = 3});
  int64_t next = 0;
  for (int64_t version = 0; version < 3; ++version) {
    EXPECT_EQ(Fill(queue, next, version), 4);
    EXPECT_THAT(Rows(*queue.Take(version)),
                ElementsAre(4 * version, 4 * version + 1, 4 * version + 2, 4 * version + 3));
    EXPECT_EQ(queue.capacity(), 0);  // while it trains
    queue.StepDone();
  }
  EXPECT_EQ(queue.capacity(), 0);  // all that will be taken
}

TEST(GroupQueue, BegunGroupsAreBoundedByTheRule) {
  // At step v, (max_staleness + v + 1) batches have been begun, at most.
  GroupQueue queue({.batch_size = 4, .max_staleness = 2, .num_batches = 100});
  int64_t next = 0;
  for (int64_t version = 0; version < 20; ++version) {
    Fill(queue, next, version);
    EXPECT_EQ(next, (2 + version + 1) * 4);
    const auto batch = queue.Take(version);
    ASSERT_TRUE(batch.has_value());
    for (const Group& group : *batch) EXPECT_LE(version - group.oldest_version(version), 2);
    EXPECT_EQ(Fill(queue, next, version), 0);
    queue.StepDone();
  }
  EXPECT_EQ(queue.TakeNumStale(), 0);
}

TEST(GroupQueue, OfThoseThatAreReadyTheOldestAreTaken) {
  GroupQueue queue({.batch_size = 2, .max_staleness = 1, .num_batches = 10});
  for (const int64_t place : {0, 1, 2, 3}) queue.Begin(place);
  EXPECT_EQ(queue.capacity(), 0);
  queue.Finish(3, Sampled(3, {0}));
  EXPECT_FALSE(queue.Take(0).has_value());
  queue.Finish(1, Sampled(1, {0}));
  EXPECT_THAT(Rows(*queue.Take(0)), ElementsAre(1, 3));
  EXPECT_EQ(queue.FirstOpen(4), 0);
  EXPECT_THAT(queue.DonePlaces(4), ElementsAre(1, 3));
}

TEST(GroupQueue, DropsWhatHasBecomeTooOldAndLetsOthersBeBegun) {
  GroupQueue queue({.batch_size = 2, .max_staleness = 1, .num_batches = 10});
  for (const int64_t place : {0, 1, 2, 3}) queue.Begin(place);
  queue.Finish(0, Sampled(0, {2, 4}));  // its first tokens are two versions old
  queue.Finish(1, Sampled(1, {3}));
  EXPECT_EQ(queue.capacity(), 0);
  EXPECT_FALSE(queue.Take(4).has_value());
  EXPECT_EQ(queue.TakeNumStale(), 1);
  EXPECT_EQ(queue.capacity(), 1);
  queue.Finish(2, Sampled(2, {4}));
  EXPECT_THAT(Rows(*queue.Take(4)), ElementsAre(1, 2));
  EXPECT_EQ(queue.TakeNumStale(), 0);
}

TEST(GroupQueue, TrainsOnWhatIsTooOldWhereAskedTo) {
  GroupQueue queue({.batch_size = 1, .max_staleness = 1, .num_batches = 10, .drops_stale = false});
  queue.Begin(0);
  queue.Finish(0, Sampled(0, {2, 4}));
  EXPECT_THAT(Rows(*queue.Take(4)), ElementsAre(0));
  EXPECT_EQ(queue.TakeNumStale(), 1);
}

TEST(GroupQueue, SamplesOfAnEarlierLifeAgeFromWhereItEnded) {
  GroupQueue queue({.batch_size = 1, .max_staleness = 1, .num_batches = 10});
  Group group = Sampled(0, {10});
  group.version_shift = 5;  // what was version 11 is 16 now
  queue.Begin(0);
  queue.Finish(0, group);
  EXPECT_TRUE(queue.Take(16).has_value());
  queue.StepDone();
  queue.Begin(1);
  queue.Finish(1, group);
  EXPECT_FALSE(queue.Take(17).has_value());
}

TEST(GroupQueue, HoldsDownHowManyAreSampledAtOnce) {
  GroupQueue queue({.batch_size = 8, .max_staleness = 3, .max_running = 3, .num_batches = 10});
  EXPECT_EQ(queue.capacity(), 3);
  queue.Begin(0);
  queue.Begin(1);
  EXPECT_EQ(queue.capacity(), 1);
  queue.Finish(0, Sampled(0, {0}));
  EXPECT_EQ(queue.capacity(), 2);
}

TEST(GroupQueue, AFilteredGroupMakesRoomForAnother) {
  GroupQueue queue({.batch_size = 2, .max_staleness = 0, .num_batches = 10});
  queue.Begin(0);
  queue.Begin(1);
  EXPECT_EQ(queue.capacity(), 0);
  queue.Drop(0);
  EXPECT_EQ(queue.capacity(), 1);
  EXPECT_EQ(queue.FirstOpen(2), 1);
  EXPECT_THAT(queue.DonePlaces(2), IsEmpty());
}

}  // namespace
}  // namespace tandem::driver
