#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::IsOkAndHolds;

absl::StatusOr<double> ExactMatch(const RewardInput& input) {
  return kExactMatchReward.make({}).value()(input);
}

TEST(ExactMatchReward, IgnoresWhiteSpaceAroundAndNothingElse) {
  EXPECT_THAT(ExactMatch({" 7,2\n", "7,2"}), IsOkAndHolds(1.0));
  EXPECT_THAT(ExactMatch({"\xC2\xA0 7,2", "7,2\t"}), IsOkAndHolds(1.0));
  EXPECT_THAT(ExactMatch({"7, 2", "7,2"}), IsOkAndHolds(0.0));
  EXPECT_THAT(ExactMatch({"7,2,", "7,2"}), IsOkAndHolds(0.0));
  EXPECT_THAT(ExactMatch({"", " "}), IsOkAndHolds(1.0));
  EXPECT_THAT(ExactMatch({"Yes", "yes"}), IsOkAndHolds(0.0));
}

TEST(ExactMatchReward, LooksAtTheTextWhateverEndedIt) {
  EXPECT_THAT(ExactMatch({"7", "7", "length"}), IsOkAndHolds(1.0));
}

}  // namespace
}  // namespace tandem::reward
