#include "tools/tandem/reward/text_rewards.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::testing::DoubleEq;

TEST(ExactMatchReward, IgnoresWhiteSpaceAroundAndNothingElse) {
  EXPECT_THAT(ExactMatchReward({" 7,2\n", "7,2"}), IsOkAndHolds(1.0));
  EXPECT_THAT(ExactMatchReward({"\xC2\xA0 7,2", "7,2\t"}), IsOkAndHolds(1.0));
  EXPECT_THAT(ExactMatchReward({"7, 2", "7,2"}), IsOkAndHolds(0.0));
  EXPECT_THAT(ExactMatchReward({"7,2,", "7,2"}), IsOkAndHolds(0.0));
  EXPECT_THAT(ExactMatchReward({"", " "}), IsOkAndHolds(1.0));
  EXPECT_THAT(ExactMatchReward({"Yes", "yes"}), IsOkAndHolds(0.0));
}

TEST(ExactMatchReward, LooksAtTheTextWhateverEndedIt) {
  EXPECT_THAT(ExactMatchReward({"7", "7", "length"}), IsOkAndHolds(1.0));
}

TEST(PrefixMatchReward, CountsTheEndAsPartOfTheAnswer) {
  EXPECT_THAT(PrefixMatchReward({"7,2", "7,2", "stop"}), IsOkAndHolds(1.0));
  EXPECT_THAT(PrefixMatchReward({"7,2", "7,2", "length"}), IsOkAndHolds(DoubleEq(3.0 / 4)));
  EXPECT_THAT(PrefixMatchReward({"7,2,6", "7,2", "stop"}), IsOkAndHolds(DoubleEq(3.0 / 4)));
  EXPECT_THAT(PrefixMatchReward({"7,", "7,2", "stop"}), IsOkAndHolds(DoubleEq(2.0 / 4)));
  EXPECT_THAT(PrefixMatchReward({"8,2", "7,2", "stop"}), IsOkAndHolds(0.0));
}

TEST(PrefixMatchReward, GivesOneForStoppingAtOnceWhereNothingIsAskedFor) {
  EXPECT_THAT(PrefixMatchReward({"", "", "stop"}), IsOkAndHolds(1.0));
  EXPECT_THAT(PrefixMatchReward({"", "", "length"}), IsOkAndHolds(0.0));
  EXPECT_THAT(PrefixMatchReward({"7", "", "stop"}), IsOkAndHolds(0.0));
}

TEST(PrefixMatchReward, CountsCodePointsRatherThanBytes) {
  EXPECT_THAT(PrefixMatchReward({"\xC3\xA9x", "\xC3\xA9y", "stop"}),
              IsOkAndHolds(DoubleEq(1.0 / 3)));
  // U+00E9 and U+00E8 share their first byte, and nothing else.
  EXPECT_THAT(PrefixMatchReward({"\xC3\xA8", "\xC3\xA9", "stop"}), IsOkAndHolds(0.0));
  EXPECT_THAT(PrefixMatchReward({"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80!", "length"}),
              IsOkAndHolds(DoubleEq(1.0 / 3)));
}

TEST(PrefixMatchReward, TakesBytesThatAreNoUtf8AsOneEach) {
  EXPECT_THAT(PrefixMatchReward({"\xFF\xFE", "\xFF\xFD", "stop"}), IsOkAndHolds(DoubleEq(1.0 / 3)));
  EXPECT_THAT(PrefixMatchReward({"a\xC3", "a\xC3", "stop"}), IsOkAndHolds(1.0));
}

}  // namespace
}  // namespace tandem::reward
