#include "tools/tandem/reward/registry.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(FindReward, KnowsEveryNameItLists) {
  for (const std::string& name : RewardNames()) {
    ASSERT_OK_AND_ASSIGN(const RewardFn reward, FindReward(name));
    EXPECT_THAT(reward({"18", "18", "stop"}), IsOkAndHolds(1.0)) << name;
    EXPECT_THAT(reward({"", "18", "length"}), IsOkAndHolds(0.0)) << name;
  }
}

TEST(FindReward, ListsNamesInAlphabeticalOrder) {
  EXPECT_THAT(RewardNames(), ElementsAre("exact_match", "gsm8k", "prefix_match", "regex"));
}

TEST(FindReward, TellsTheNearestNameOfATypo) {
  EXPECT_THAT(FindReward("gms8k"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("exact_match, gsm8k, prefix_match, regex"),
                             HasSubstr("found \"gms8k\""), HasSubstr("did you mean gsm8k?"))));
  EXPECT_THAT(FindReward("prefix-match"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mean prefix_match?")));
}

TEST(FindReward, SuggestsNothingWhereNothingIsNear) {
  EXPECT_THAT(FindReward("humaneval"),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("did you mean"))));
  EXPECT_THAT(FindReward(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("regex")));
}

TEST(FindReward, RefusesAPatternForARewardThatHasNone) {
  EXPECT_THAT(FindReward("gsm8k", {.pattern = "x"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reward.pattern")));
  EXPECT_THAT(FindReward("regex", {.pattern = "x"}), IsOk());
}

TEST(FindAnswerCheck, RefusesWhatTheRewardCannotUse) {
  const auto refuses = [](absl::string_view name, const std::string& pattern,
                          const std::string& answer, const std::string& problem) {
    EXPECT_THAT(FindAnswerCheck(name, {.pattern = pattern})(answer),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(problem)))
        << name << " " << pattern;
  };
  for (const std::string& name : RewardNames()) EXPECT_OK(FindAnswerCheck(name)("18")) << name;
  refuses("regex", "", "", "found an empty answer");
  refuses("gsm8k", "", "unknown", "expected a number");
  refuses("regex", "", "a(", "expected a PCRE2 pattern");
  refuses("regex", "is (\\d+)", "", "group 1 of reward.pattern");
}

TEST(FindAnswerCheck, AcceptsEverythingWhereNoAnswerIsNeeded) {
  EXPECT_OK(FindAnswerCheck("regex", {.pattern = "\\d+"})(""));
  EXPECT_OK(FindAnswerCheck("service")(""));
  EXPECT_OK(FindAnswerCheck("prefix_match")(""));  // to stop at once may be right
}

TEST(FindAnswerTest, IsTrueForEveryAnswerOfARewardWithoutATest) {
  for (const std::string& name : RewardNames()) EXPECT_TRUE(FindAnswerTest(name)("18")) << name;
}

}  // namespace
}  // namespace tandem::reward
