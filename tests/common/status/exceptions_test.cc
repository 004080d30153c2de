#include "common/status/exceptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "absl/status/statusor.h"
#include "tests/support/status_matchers.h"

namespace tandem {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace tandem
