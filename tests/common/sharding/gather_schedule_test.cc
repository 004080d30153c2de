#include "common/sharding/gather_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem::sharding {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Forward through units 0 to 3, of which the last step reads the first again, as the head of a tied
// model reads the embedding; then back to the first.
const std::vector<std::vector<int>> kTied = {{0}, {1}, {2}, {3, 0}, {2}, {1}, {0}};

TEST(GatherSchedule, GathersAheadAndFreesWhatNoStepOfTheWindowReads) {
  const GatherSchedule schedule(kTied, {.prefetch = 1});
  ASSERT_EQ(schedule.num_steps(), 7U);
  EXPECT_THAT(schedule.step(0).gathers, ElementsAre(0, 1));
  EXPECT_THAT(schedule.step(0).frees, IsEmpty());
  EXPECT_THAT(schedule.step(1).frees, ElementsAre(0));
  EXPECT_THAT(schedule.step(1).gathers, ElementsAre(2));
  EXPECT_THAT(schedule.step(2).frees, ElementsAre(1));
  EXPECT_THAT(schedule.step(2).gathers, ElementsAre(3, 0));
  // Unit 2 is read by the next step, so it stays.
  EXPECT_THAT(schedule.step(3).frees, IsEmpty());
  EXPECT_THAT(schedule.step(3).gathers, IsEmpty());
  EXPECT_THAT(schedule.step(4).frees, ElementsAre(0, 3));
  EXPECT_THAT(schedule.step(4).gathers, ElementsAre(1));
  EXPECT_THAT(schedule.step(6).frees, ElementsAre(1));
  EXPECT_THAT(schedule.step(6).gathers, IsEmpty());
}

TEST(GatherSchedule, WithoutPrefetchHoldsTheUnitsOfOneStep) {
  const GatherSchedule schedule(kTied, {.prefetch = 0});
  int held = 0;
  for (size_t s = 0; s < schedule.num_steps(); ++s) {
    held -= static_cast<int>(schedule.step(s).frees.size());
    held += static_cast<int>(schedule.step(s).gathers.size());
    EXPECT_EQ(held, static_cast<int>(schedule.step(s).units.size())) << "step " << s;
  }
}

TEST(GatherSchedule, KeepsUnitsThatALaterStepReads) {
  const GatherSchedule schedule(kTied, {.prefetch = 1, .reshard_after_forward = false});
  std::vector<int> gathered;
  for (size_t s = 0; s < schedule.num_steps(); ++s) {
    const std::vector<int>& starts = schedule.step(s).gathers;
    gathered.insert(gathered.end(), starts.begin(), starts.end());
  }
  EXPECT_THAT(gathered, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(schedule.step(3).frees, IsEmpty());
  EXPECT_THAT(schedule.step(4).frees, ElementsAre(3));
  EXPECT_THAT(schedule.step(5).frees, ElementsAre(2));
}

}  // namespace
}  // namespace tandem::sharding
