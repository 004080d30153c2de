#include "tools/tandem/driver/staleness_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

// The batch for `version`; nullopt if it is not complete yet.
std::optional<StepBatch> Take(StalenessQueue& queue, int64_t version) {
  auto batch = queue.Take(version);
  EXPECT_OK(batch.status());
  return *std::move(batch);
}

std::vector<int64_t> Rows(const std::optional<StepBatch>& batch) {
  std::vector<int64_t> rows;
  for (const Group& group : batch.value().groups) rows.push_back(group.prompt.row);
  return rows;
}

// The places before `next` that are neither open nor to come.
std::vector<int64_t> DonePlaces(const StalenessQueue& queue, int64_t next) {
  std::vector<int64_t> done;
  for (int64_t place = queue.FirstOpen(next); place < next; ++place) {
    if (!queue.IsOpen(place)) done.push_back(place);
  }
  return done;
}

// Begins as many as it may and finishes them with samples of `version`. Answers how many.
int64_t Fill(StalenessQueue& queue, int64_t& next, int64_t version) {
  int64_t count = 0;
  for (; queue.capacity() > 0; ++count) {
    queue.Begin(next);
    queue.Finish(next, Sampled(next, {version}), true);
    ++next;
  }
  return count;
}

TEST(StalenessQueue, WithoutStalenessSamplingAndTrainingTakeTurns) {
  StalenessQueue queue({.batch_size = 4, .max_staleness = 0, .num_batches = 3});
  int64_t next = 0;
  for (int64_t version = 0; version < 3; ++version) {
    EXPECT_EQ(Fill(queue, next, version), 4);
    EXPECT_THAT(Rows(Take(queue, version)),
                ElementsAre(4 * version, 4 * version + 1, 4 * version + 2, 4 * version + 3));
    EXPECT_EQ(queue.capacity(), 0);  // while it trains
    queue.OpenStep();
  }
  EXPECT_EQ(queue.capacity(), 0);  // all that will be taken
}

TEST(StalenessQueue, BegunGroupsAreBoundedByTheRule) {
  // At step v, (max_staleness + v + 1) batches have been begun, at most.
  StalenessQueue queue({.batch_size = 4, .max_staleness = 2, .num_batches = 100});
  int64_t next = 0;
  for (int64_t version = 0; version < 20; ++version) {
    Fill(queue, next, version);
    EXPECT_EQ(next, (2 + version + 1) * 4);
    const auto batch = Take(queue, version);
    ASSERT_TRUE(batch.has_value());
    for (const Group& group : batch->groups) EXPECT_LE(version - group.oldest_version(version), 2);
    EXPECT_EQ(batch->metrics.at("async/dropped_groups"), 0);
    EXPECT_EQ(Fill(queue, next, version), 0);
    queue.OpenStep();
  }
}

TEST(StalenessQueue, OfThoseThatAreReadyTheOldestAreTaken) {
  StalenessQueue queue({.batch_size = 2, .max_staleness = 1, .num_batches = 10});
  for (const int64_t place : {0, 1, 2, 3}) queue.Begin(place);
  EXPECT_EQ(queue.capacity(), 0);
  queue.Finish(3, Sampled(3, {0}), true);
  EXPECT_FALSE(Take(queue, 0).has_value());
  queue.Finish(1, Sampled(1, {0}), true);
  EXPECT_THAT(Rows(Take(queue, 0)), ElementsAre(1, 3));
  EXPECT_EQ(queue.FirstOpen(4), 0);
  EXPECT_THAT(DonePlaces(queue, 4), ElementsAre(1, 3));
}

TEST(StalenessQueue, DropsWhatHasBecomeTooOldAndLetsOthersBeBegun) {
  StalenessQueue queue({.batch_size = 2, .max_staleness = 1, .num_batches = 10});
  for (const int64_t place : {0, 1, 2, 3}) queue.Begin(place);
  queue.Finish(0, Sampled(0, {2, 4}), true);  // its first tokens are two versions old
  queue.Finish(1, Sampled(1, {3}), true);
  EXPECT_EQ(queue.capacity(), 0);
  EXPECT_FALSE(Take(queue, 4).has_value());
  EXPECT_EQ(queue.capacity(), 1);
  queue.Finish(2, Sampled(2, {4}), true);
  const auto batch = Take(queue, 4);
  EXPECT_THAT(Rows(batch), ElementsAre(1, 2));
  EXPECT_EQ(batch->metrics.at("async/dropped_groups"), 1);
}

TEST(StalenessQueue, TrainsOnWhatIsTooOldWhereAskedTo) {
  StalenessQueue queue(
      {.batch_size = 1, .max_staleness = 1, .num_batches = 10, .drops_stale = false});
  queue.Begin(0);
  queue.Finish(0, Sampled(0, {2, 4}), true);
  const auto batch = Take(queue, 4);
  EXPECT_THAT(Rows(batch), ElementsAre(0));
  EXPECT_EQ(batch->metrics.at("async/stale_groups"), 1);
}

TEST(StalenessQueue, ReportsLengthAndRewardOfWhatItDropped) {
  StalenessQueue queue({.batch_size = 1, .max_staleness = 1, .num_batches = 10});
  Group old = Sampled(0, {2});
  old.completions[0].token_ids = {5, 6, 7};
  old.completions[0].reward = 0.5;
  queue.Begin(0);
  queue.Begin(1);
  queue.Finish(0, old, true);
  queue.Finish(1, Sampled(1, {4}), true);

  const auto batch = Take(queue, 4);

  EXPECT_EQ(batch->metrics.at("async/dropped_groups"), 1);
  EXPECT_EQ(batch->metrics.at("async/dropped_response_length/mean"), 3);
  EXPECT_EQ(batch->metrics.at("async/dropped_reward/mean"), 0.5);
}

TEST(StalenessQueue, WaitsForAGroupThatWouldBeStaleAtTheNextStep) {
  StalenessQueue queue({.batch_size = 2,
                        .max_staleness = 1,
                        .num_batches = 10,
                        .waits = true,
                        .drops_stale = false});
  for (const int64_t place : {0, 1, 2, 3}) queue.Begin(place);
  for (const int64_t place : {1, 2, 3}) queue.Finish(place, Sampled(place, {0}), true);
  EXPECT_THAT(Rows(Take(queue, 0)), ElementsAre(1, 2));  // 0 may train at the next step
  queue.OpenStep();
  for (const int64_t place : {4, 5}) {
    queue.Begin(place);
    queue.Finish(place, Sampled(place, {1}), true);
  }

  EXPECT_FALSE(queue.HasBatch());
  EXPECT_FALSE(Take(queue, 1).has_value());
  queue.Finish(0, Sampled(0, {0, 1}), true);

  EXPECT_TRUE(queue.HasBatch());
  const auto batch = Take(queue, 1);
  EXPECT_THAT(Rows(batch), ElementsAre(0, 3));
  EXPECT_EQ(batch->metrics.at("async/stale_groups"), 0);
}

// The slowest group of each batch ends last, whatever its place.
TEST(StalenessQueue, LosesNoGroupAndTrainsOnNoneThatIsStaleIfItWaits) {
  for (const int64_t max_staleness : {1, 2, 3}) {
    StalenessQueue queue({.batch_size = 3,
                          .max_staleness = max_staleness,
                          .num_batches = 20,
                          .waits = true,
                          .drops_stale = false});
    std::vector<int64_t> trained, running;
    int64_t next = 0;
    for (int64_t version = 0; version < 20; ++version) {
      for (; queue.capacity() > 0; ++next) {
        queue.Begin(next);
        if (next % 3 == 0) {
          running.push_back(next);
        } else {
          queue.Finish(next, Sampled(next, {version}), true);
        }
      }
      auto batch = Take(queue, version);
      while (!batch.has_value()) {
        ASSERT_FALSE(running.empty());
        // It began with the version of its batch at the latest.
        const int64_t began = std::max<int64_t>(0, running.front() / 3 - max_staleness);
        queue.Finish(running.front(), Sampled(running.front(), {began}), true);
        running.erase(running.begin());
        batch = Take(queue, version);
      }
      EXPECT_EQ(batch->metrics.at("async/stale_groups"), 0) << version;
      for (const int64_t row : Rows(batch)) trained.push_back(row);
      queue.OpenStep();
    }
    std::sort(trained.begin(), trained.end());
    for (int64_t place = 0; place < 60; ++place) EXPECT_EQ(trained[place], place);
  }
}

TEST(StalenessQueue, SamplesOfAnEarlierLifeAgeFromWhereItEnded) {
  StalenessQueue queue({.batch_size = 1, .max_staleness = 1, .num_batches = 10});
  Group group = Sampled(0, {10});
  group.version_shift = 5;  // what was version 11 is 16 now
  queue.Begin(0);
  queue.Finish(0, group, true);
  EXPECT_TRUE(Take(queue, 16).has_value());
  queue.OpenStep();
  queue.Begin(1);
  queue.Finish(1, group, true);
  EXPECT_FALSE(Take(queue, 17).has_value());
}

TEST(StalenessQueue, HoldsDownHowManyAreSampledAtOnce) {
  StalenessQueue queue({.batch_size = 8, .max_staleness = 3, .max_running = 3, .num_batches = 10});
  EXPECT_EQ(queue.capacity(), 3);
  queue.Begin(0);
  queue.Begin(1);
  EXPECT_EQ(queue.capacity(), 1);
  queue.Finish(0, Sampled(0, {0}), true);
  EXPECT_EQ(queue.capacity(), 2);
}

TEST(StalenessQueue, AFilteredGroupMakesRoomForAnother) {
  StalenessQueue queue({.batch_size = 2, .max_staleness = 0, .num_batches = 10});
  queue.Begin(0);
  queue.Begin(1);
  EXPECT_EQ(queue.capacity(), 0);
  queue.Finish(0, Sampled(0, {0}), false);
  EXPECT_EQ(queue.capacity(), 1);
  EXPECT_EQ(queue.FirstOpen(2), 1);
  EXPECT_THAT(DonePlaces(queue, 2), IsEmpty());
}

TEST(StalenessQueue, TooManyGroupsWithoutALearningSignalEndTheRun) {
  StalenessQueue queue(
      {.batch_size = 2, .first_step = 3, .num_batches = 10, .filters = true, .max_filtered = 4});
  for (int64_t place = 0; place < 5; ++place) {
    EXPECT_OK(queue.Take(0).status());
    queue.Begin(place);
    queue.Finish(place, Sampled(place, {0}), false);
  }
  EXPECT_EQ(queue.capacity(), 0);
  EXPECT_THAT(queue.Take(0).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("step 3"), HasSubstr("found 0, and 5 whose rewards"))));
}

}  // namespace
}  // namespace tandem::driver
