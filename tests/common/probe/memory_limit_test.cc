#include "common/probe/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/probe/exceptions.h"
#include "tests/support/sanitizer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::probe {
namespace {

using ::tandem::testing::StatusIs;
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

TEST(Exceptions, WantOfMemoryIsTheCallersToMend) {
  for (const absl::Status& status :
       {StatusOf(std::bad_alloc()),
        StatusOf(std::runtime_error(
            "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 8 bytes.\nstack"))}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                 AllOf(HasSubstr("memory"), HasSubstr("are resident"),
                                       HasSubstr("rollout.kv_cache_megabytes"))));
  }
  EXPECT_THAT(
      StatusOf(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("thread")));
}

TEST(Exceptions, OthersKeepTheirFirstLine) {
  EXPECT_THAT(StatusOf(std::runtime_error("went wrong\n  frame #0")),
              StatusIs(absl::StatusCode::kInternal, "went wrong"));
}

TEST(Exceptions, CatchPassesOnWhatIsReturned) {
  const absl::StatusOr<int> value = Catch([]() -> absl::StatusOr<int> { return 3; });
  ASSERT_OK(value.status());
  EXPECT_EQ(*value, 3);
  EXPECT_THAT(Catch([]() -> absl::StatusOr<int> { throw std::bad_alloc(); }),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("memory")));
}

TEST(ExceptionsDeathTest, AnExceptionOfAnyThreadEndsTheProcessWithItsCause) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        NameUncaughtExceptions("tandem-test");
        std::thread([] { throw std::runtime_error("a peer said so"); }).join();
      },
      ::testing::ExitedWithCode(1), "tandem-test ends.*a peer said so");
}

void RunOutOfAddressSpace() {
  NameUncaughtExceptions("tandem-test");
  const rlimit space{rlim_t{8} << 30, rlim_t{8} << 30};
  setrlimit(RLIMIT_AS, &space);
  std::thread([] { std::vector<char> much(size_t{1} << 40); }).join();
}

TEST(ExceptionsDeathTest, WantOfAddressSpaceNamesItsLimit) {
  if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer maps more than the limit";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(RunOutOfAddressSpace(), ::testing::ExitedWithCode(1),
              "out of memory.*RLIMIT_AS. allows 8.0 GiB");
}

}  // namespace
}  // namespace tandem::probe
