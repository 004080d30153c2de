#include "common/host/cpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "tests/support/status_matchers.h"

namespace tandem::host {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CpuList, ReadsNumbersAndRanges) {
  ASSERT_OK_AND_ASSIGN(std::vector<int> cpus, ParseCpuList("0-3,8"));
  EXPECT_THAT(cpus, ElementsAre(0, 1, 2, 3, 8));
  ASSERT_OK_AND_ASSIGN(cpus, ParseCpuList("5,2-2"));
  EXPECT_THAT(cpus, ElementsAre(5, 2));
}

TEST(CpuList, SaysWhatIsNone) {
  for (const char* text : {"", "x", "1,", "3-1", "-1", "1-", "0-99999999", "1.5"}) {
    EXPECT_THAT(ParseCpuList(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("as 0-3,8, found")))
        << text;
  }
  EXPECT_THAT(ParseCpuList("0-3,2").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("CPU 2 is named twice")));
}

TEST(CpuList, WritesWhatItReads) {
  for (const char* text : {"0", "0-3,8", "4,6-7,1"}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<int> cpus, ParseCpuList(text));
    EXPECT_EQ(FormatCpuList(cpus), text);
  }
  EXPECT_EQ(FormatCpuList({}), "");
}

TEST(CpuList, SharesAreNeighboursAndCoverAll) {
  const std::vector<int> cpus = {0, 1, 2, 3, 8, 9, 10};
  EXPECT_THAT(ShareOfCpus(cpus, 0, 1, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(ShareOfCpus(cpus, 1, 2, 2), ElementsAre(3, 8, 9, 10));
  EXPECT_THAT(ShareOfCpus(cpus, 1, 3, 3), ElementsAre(2, 3, 8, 9, 10));
  EXPECT_THAT(ShareOfCpus(cpus, 0, 1, 8), IsEmpty());
}

TEST(CpuList, AThreadIsPinnedAloneAndOnlyWhereItMay) {
  const std::vector<int> allowed = AllowedCpus();
  ASSERT_FALSE(allowed.empty());
  std::thread([&] {
    ASSERT_OK(PinThisThread(allowed.back()));
    EXPECT_EQ(sched_getcpu(), allowed.back());
    EXPECT_THAT(AllowedCpus(), ElementsAre(allowed.back()));
    EXPECT_THAT(PinThisThread(CPU_SETSIZE - 1),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("may not run on CPU")));
    EXPECT_THAT(PinThisThread(-1), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
  }).join();
  EXPECT_EQ(AllowedCpus(), allowed);
}

}  // namespace
}  // namespace tandem::host
