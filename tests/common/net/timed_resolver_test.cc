#include "common/net/timed_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::net {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::_;

TEST(TimedResolver, ResolvesNamesAndNumbers) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  ASSERT_OK_AND_ASSIGN(const auto name, ResolveBefore({"localhost", 80}, deadline));
  ASSERT_FALSE(name.empty());
  EXPECT_TRUE(name[0].is_loopback());
  EXPECT_EQ(name[0].port(), 80);
  ASSERT_OK_AND_ASSIGN(const auto number, ResolveBefore({"127.0.0.1", 81}, deadline));
  ASSERT_EQ(number.size(), 1u);
  EXPECT_EQ(number[0].port(), 81);
}

TEST(TimedResolver, GivesUp) {
  EXPECT_THAT(ResolveBefore({"name.invalid", 80}, absl::InfinitePast()).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::HasSubstr("name.invalid")));
  EXPECT_THAT(
      ResolveBefore({"name.invalid", 80}, absl::InfinitePast(), [] { return true; }).status(),
      StatusIs(absl::StatusCode::kCancelled, _));
}

}  // namespace
}  // namespace tandem::net
