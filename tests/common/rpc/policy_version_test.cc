#include "common/rpc/policy_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tests/support/status_matchers.h"

namespace tandem::rpc {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(PolicyVersion, IsWhatReadersOfJsonHaveExactly) {
  EXPECT_EQ(kMaxPolicyVersion, 9007199254740991);
  for (const int64_t version : {int64_t{0}, int64_t{1}, kMaxPolicyVersion}) {
    EXPECT_OK(CheckPolicyVersion("policy_version", version));
    EXPECT_OK(CheckReportedVersion("rollout-0", version));
    EXPECT_EQ(static_cast<int64_t>(static_cast<double>(version)), version);
  }
  for (const int64_t version : {kMin, int64_t{-2}, kMaxPolicyVersion + 1, kMax}) {
    for (const NoVersion none : {NoVersion::kRefused, NoVersion::kAllowed}) {
      EXPECT_THAT(CheckPolicyVersion("policy_version", version, none),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("policy_version")));
      EXPECT_THAT(CheckReportedVersion("rollout-0", version, none),
                  StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("rollout-0")));
    }
  }
}

TEST(PolicyVersion, MinusOneIsNoneOnlyWhereThatMayBe) {
  EXPECT_OK(CheckPolicyVersion("v", -1, NoVersion::kAllowed));
  EXPECT_THAT(CheckPolicyVersion("v", -1),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

TEST(PolicyVersion, TheNextNeverOverflows) {
  ASSERT_OK_AND_ASSIGN(const int64_t first, PolicyVersionAfter(-1));
  EXPECT_EQ(first, 0);
  ASSERT_OK_AND_ASSIGN(const int64_t last, PolicyVersionAfter(kMaxPolicyVersion - 1));
  EXPECT_EQ(last, kMaxPolicyVersion);
  EXPECT_THAT(PolicyVersionAfter(kMaxPolicyVersion),
              StatusIs(absl::StatusCode::kOutOfRange, ::testing::_));
  EXPECT_THAT(PolicyVersionAfter(kMax), StatusIs(absl::StatusCode::kOutOfRange, ::testing::_));
}

}  // namespace
}  // namespace tandem::rpc
