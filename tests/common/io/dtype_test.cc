#include "common/io/dtype.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DType, IsFoundByBothOfItsNames) {
  for (int i = 0; i <= static_cast<int>(DType::kF8E8M0); ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_THAT(ParseDType(Name(dtype)), IsOkAndHolds(dtype));
    EXPECT_THAT(ParseDType(TorchName(dtype)), IsOkAndHolds(dtype));
    EXPECT_GT(SizeOf(dtype), 0);
  }
}

TEST(DType, HasTheSizeThatItsNameSays) {
  EXPECT_EQ(SizeOf(DType::kBF16), 2);
  EXPECT_EQ(SizeOf(DType::kF64), 8);
  EXPECT_EQ(SizeOf(DType::kF8E4M3), 1);
  EXPECT_EQ(SizeOf(DType::kBool), 1);
}

TEST(DType, ListsTheKnownNamesForAnUnknownOne) {
  EXPECT_THAT(ParseDType("F4"), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("F64, F32"), HasSubstr("found \"F4\""))));
}

}  // namespace
}  // namespace tandem::io
