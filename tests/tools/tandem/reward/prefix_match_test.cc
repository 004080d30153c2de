#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::testing::DoubleEq;

absl::StatusOr<double> PrefixMatch(const RewardInput& input) {
  return kPrefixMatchReward.make({}).value()(input);
}

TEST(PrefixMatchReward, CountsTheEndAsPartOfTheAnswer) {
  EXPECT_THAT(PrefixMatch({"7,2", "7,2", "stop"}), IsOkAndHolds(1.0));
  EXPECT_THAT(PrefixMatch({"7,2", "7,2", "length"}), IsOkAndHolds(DoubleEq(3.0 / 4)));
  EXPECT_THAT(PrefixMatch({"7,2,6", "7,2", "stop"}), IsOkAndHolds(DoubleEq(3.0 / 4)));
  EXPECT_THAT(PrefixMatch({"7,", "7,2", "stop"}), IsOkAndHolds(DoubleEq(2.0 / 4)));
  EXPECT_THAT(PrefixMatch({"8,2", "7,2", "stop"}), IsOkAndHolds(0.0));
}

TEST(PrefixMatchReward, GivesOneForStoppingAtOnceWhereNothingIsAskedFor) {
  EXPECT_THAT(PrefixMatch({"", "", "stop"}), IsOkAndHolds(1.0));
  EXPECT_THAT(PrefixMatch({"", "", "length"}), IsOkAndHolds(0.0));
  EXPECT_THAT(PrefixMatch({"7", "", "stop"}), IsOkAndHolds(0.0));
}

TEST(PrefixMatchReward, CountsCodePointsRatherThanBytes) {
  EXPECT_THAT(PrefixMatch({"\xC3\xA9x", "\xC3\xA9y", "stop"}), IsOkAndHolds(DoubleEq(1.0 / 3)));
  // U+00E9 and U+00E8 share their first byte, and nothing else.
  EXPECT_THAT(PrefixMatch({"\xC3\xA8", "\xC3\xA9", "stop"}), IsOkAndHolds(0.0));
  EXPECT_THAT(PrefixMatch({"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80!", "length"}),
              IsOkAndHolds(DoubleEq(1.0 / 3)));
}

TEST(PrefixMatchReward, TakesBytesThatAreNoUtf8AsOneEach) {
  EXPECT_THAT(PrefixMatch({"\xFF\xFE", "\xFF\xFD", "stop"}), IsOkAndHolds(DoubleEq(1.0 / 3)));
  EXPECT_THAT(PrefixMatch({"a\xC3", "a\xC3", "stop"}), IsOkAndHolds(1.0));
}

}  // namespace
}  // namespace tandem::reward
