#include "common/host/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temp_folder.h"

namespace tandem::host {
namespace {

using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() { folder_.Write("membership", "0::/pods/one\n"); }
  MemoryKills Count() const { return CountMemoryKills(place_, folder_ / "vmstat"); }

  const TempFolder folder_;
  const ControlGroupPlace place_{folder_ / "membership", folder_ / "groups"};
};

TEST_F(MemoryLimitTest, TheLowestLimitOfTheControlGroupsIsNamed) {
  folder_.Write("groups/pods/one/memory.max", "max\n");
  EXPECT_THAT(DescribeMemoryLimits(place_), ::testing::Not(HasSubstr("memory.max")));
  folder_.Write("groups/pods/memory.max", "1073741824\n");
  folder_.Write("groups/memory.max", "4294967296\n");
  EXPECT_THAT(DescribeMemoryLimits(place_),
              AllOf(HasSubstr("memory.max of " + place_.root + "/pods is 1.0 GiB"),
                    HasSubstr("are resident"), HasSubstr("the host has")));
}

TEST_F(MemoryLimitTest, ALimitOfTheFirstVersionIsNamedToo) {
  folder_.Write("membership", "3:memory:/pods\n");
  folder_.Write("groups/memory/pods/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_THAT(DescribeMemoryLimits(place_), ::testing::Not(HasSubstr("limit_in_bytes")));
  folder_.Write("groups/memory/pods/memory.limit_in_bytes", "524288000\n");
  EXPECT_THAT(DescribeMemoryLimits(place_), HasSubstr("memory.limit_in_bytes of"));
  EXPECT_THAT(DescribeMemoryLimits(place_), HasSubstr("is 500.0 MiB"));
}

TEST_F(MemoryLimitTest, AKillInTheGroupGivesItsLimit) {
  folder_.Write("groups/pods/one/memory.max", "536870912\n");
  folder_.Write("groups/pods/one/memory.events", "low 0\noom 3\noom_kill 1\n");
  folder_.Write("vmstat", "nr_free_pages 5\noom_kill 7\n");
  const MemoryKills before = Count();
  EXPECT_THAT(DescribeMemoryKill(before, Count(), place_), IsEmpty());

  folder_.Write("groups/pods/one/memory.events", "low 0\noom 4\noom_kill 2\n");

  EXPECT_THAT(DescribeMemoryKill(before, Count(), place_),
              AllOf(HasSubstr("control group"), HasSubstr("oom_kill 2"), HasSubstr("512.0 MiB"),
                    HasSubstr("rollout.kv_cache_megabytes")));
}

TEST_F(MemoryLimitTest, AKillOnTheHostIsTold) {
  folder_.Write("vmstat", "oom_kill 7\n");
  const MemoryKills before = Count();
  folder_.Write("vmstat", "oom_kill 8\n");
  EXPECT_THAT(DescribeMemoryKill(before, Count(), place_),
              AllOf(HasSubstr("this host"), HasSubstr("oom_kill 8")));
}

TEST_F(MemoryLimitTest, WithoutCountsNothingIsSaid) {
  EXPECT_THAT(DescribeMemoryKill(Count(), Count(), place_), IsEmpty());
}

}  // namespace
}  // namespace tandem::host
