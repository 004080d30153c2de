#include "common/io/space_reserve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::NamesIn;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SpaceReserve, KeepsSpaceWithoutAName) {
  const TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(SpaceReserve space, SpaceReserve::Take(folder.path(), 1 << 20, "the model"));
  EXPECT_OK(space.Check());
  EXPECT_THAT(NamesIn(folder.path()), IsEmpty());
  space.Release();
  EXPECT_FALSE(space.is_held());
  EXPECT_OK(space.Check());  // what is free is enough
}

TEST(SpaceReserve, SaysWhatIsNeededAndWhatIsFree) {
  const TemporaryFolder folder;
  struct statvfs info;
  ASSERT_EQ(::statvfs(folder.path().c_str(), &info), 0);
  // More than the whole disk.
  const int64_t needed = static_cast<int64_t>(info.f_blocks * info.f_frsize) + 1;
  EXPECT_THAT(SpaceReserve::Take(folder.path(), needed, "the model"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(folder.path()), HasSubstr("the model needs"),
                             HasSubstr(std::to_string(needed)), HasSubstr("are available"))));
  EXPECT_THAT(NamesIn(folder.path()), IsEmpty());
}

}  // namespace
}  // namespace tandem::io
