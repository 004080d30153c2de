#include "common/rpc/reset_limit.h"

#include <gtest/gtest.h>

namespace tandem::rpc {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(10);
constexpr absl::Time kStart = absl::UnixEpoch();

TEST(ResetLimit, AClientMayTakeBackAllThatItMayHaveAtOnce) {
  ResetLimit limit(100, kInterval);
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(limit.Exceeds("a", kStart)) << i;
  EXPECT_TRUE(limit.Exceeds("a", kStart));
  EXPECT_FALSE(limit.Exceeds("b", kStart));
}

TEST(ResetLimit, ForgivesWithTime) {
  ResetLimit limit(100, kInterval);
  for (int i = 0; i < 100; ++i) limit.Exceeds("a", kStart);
  for (int i = 0; i < 50; ++i) ASSERT_FALSE(limit.Exceeds("a", kStart + kInterval / 2)) << i;
  EXPECT_TRUE(limit.Exceeds("a", kStart + kInterval / 2));
}

TEST(ResetLimit, ForgetsConnectionsThatAreQuiet) {
  ResetLimit limit(100, kInterval);
  for (int i = 0; i < 1000; ++i) limit.Exceeds(absl::StrCat(i), kStart);
  EXPECT_EQ(limit.size(), 1000);
  limit.Exceeds("late", kStart + 2 * kInterval);
  EXPECT_EQ(limit.size(), 1);
}

TEST(ResetLimit, AClockThatGoesBackForgivesNothing) {
  ResetLimit limit(2, kInterval);
  limit.Exceeds("a", kStart);
  limit.Exceeds("a", kStart - kInterval);
  EXPECT_TRUE(limit.Exceeds("a", kStart - 2 * kInterval));
}

}  // namespace
}  // namespace tandem::rpc
