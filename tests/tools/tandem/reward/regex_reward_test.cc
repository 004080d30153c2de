#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<RewardFn> MakeRegexReward(const std::string& pattern) {
  return kRegexReward.make({.pattern = pattern});
}

TEST(RegexReward, SearchesTheCompletionForTheOption) {
  ASSERT_OK_AND_ASSIGN(const RewardFn reward,
                       MakeRegexReward("<think>(?:(?!</think>).)*</think>\\s*\\d+$"));
  EXPECT_THAT(reward({"well: <think>2+2</think> 4", "ignored ("}), IsOkAndHolds(1.0));
  EXPECT_THAT(reward({"<think>2+2 4", "4"}), IsOkAndHolds(0.0));
}

TEST(RegexReward, SearchesForTheRowsAnswerWithoutAnOption) {
  ASSERT_OK_AND_ASSIGN(const RewardFn reward, MakeRegexReward(""));
  EXPECT_THAT(reward({"it is 18.", "\\b18\\b"}), IsOkAndHolds(1.0));
  EXPECT_THAT(reward({"it is 180.", "\\b18\\b"}), IsOkAndHolds(0.0));
  EXPECT_THAT(reward({"\xC3\xA9t\xC3\xA9", "^\\p{L}{3}$"}), IsOkAndHolds(1.0));
  EXPECT_THAT(reward({"", "^$"}), IsOkAndHolds(1.0));
}

TEST(RegexReward, ComparesTheFirstGroupWithTheAnswer) {
  ASSERT_OK_AND_ASSIGN(const RewardFn reward, MakeRegexReward("answer is (\\d+|none)(\\.)?"));
  EXPECT_THAT(reward({"The answer is 6.", "5"}), IsOkAndHolds(0.0));
  EXPECT_THAT(reward({"The answer is 5.", " 5\n"}), IsOkAndHolds(1.0));
  EXPECT_THAT(reward({"The answer is 5. The answer is 6.", "6"}), IsOkAndHolds(0.0));
  EXPECT_THAT(reward({"It is 5.", "5"}), IsOkAndHolds(0.0));
}

TEST(RegexReward, AGroupThatIsNotInTheMatchEqualsNoAnswer) {
  ASSERT_OK_AND_ASSIGN(const RewardFn reward, MakeRegexReward("is (5)|so"));
  EXPECT_THAT(reward({"so", "5"}), IsOkAndHolds(0.0));
}

TEST(RegexReward, NeedsAnswersForAGroupOrWithoutAnOption) {
  EXPECT_TRUE(NeedsAnswer("regex"));
  EXPECT_TRUE(NeedsAnswer("regex", {.pattern = "(\\d)"}));
  EXPECT_FALSE(NeedsAnswer("regex", {.pattern = "(?:a|b)"}));
  EXPECT_TRUE(NeedsAnswer("exact_match"));
}

TEST(RegexReward, TellsAnswersThatItsGroupCannotEqual) {
  const auto can_match = [](const std::string& pattern, const std::string& answer) {
    return FindAnswerTest("regex", {.pattern = pattern})(answer);
  };
  EXPECT_FALSE(can_match("answer is (\\d+)", "yyy"));
  EXPECT_FALSE(can_match("answer is (\\d+)", "1,000"));
  EXPECT_TRUE(can_match("answer is (\\d+)", " 1000\n"));
  EXPECT_FALSE(can_match("(?:no|so) (?<n>[0-9]{2})", "123"));
  EXPECT_TRUE(can_match("(?:no|so) (?<n>[0-9]{2})", "12"));
  EXPECT_TRUE(can_match("(?i)is (yes|no)", "Yes"));
  EXPECT_TRUE(can_match("is( \\d+)\\.", "5"));
  EXPECT_TRUE(can_match("answer:(.*)", "a\nb"));
  EXPECT_FALSE(can_match("([(]\\d[)]|\\(x\\))", "y"));
  EXPECT_TRUE(can_match("([(]\\d[)]|\\(x\\))", "(x)"));
  // Nothing is said of a group that depends on what stands around it.
  for (const char* pattern : {"(\\d(?=x))", "((?-1)?)", "(?|(a)|(b))", "(\\bx\\b)", "(?x)(a b)",
                              "\\Q(\\E(a)", "(?(DEFINE)(a))", "(a\\Kb)"}) {
    EXPECT_TRUE(can_match(pattern, "yyy")) << pattern;
  }
}

TEST(RegexReward, RefusesWhatIsNoPattern) {
  EXPECT_THAT(MakeRegexReward("a(b"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("reward.pattern"), HasSubstr("at byte 3"))));
  ASSERT_OK_AND_ASSIGN(const RewardFn reward, MakeRegexReward(""));
  EXPECT_THAT(reward({"x", "["}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("answer")));
  EXPECT_THAT(reward({"x", ""}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
  EXPECT_THAT(MakeRegexReward(std::string(1 << 20, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most")));
}

TEST(RegexReward, GivesUpOnPatternsThatWouldTakeForEver) {
  const std::string text(5000, 'a');
  for (const char* pattern :
       {"(a+)+$b", "^(a|aa)+$b", "(a*)*b", "(?:a?){40}a{40}c", "(.*)(.*)(.*)x", "(?=(a+))+\\1+b"}) {
    ASSERT_OK_AND_ASSIGN(const RewardFn reward, MakeRegexReward(pattern));
    EXPECT_THAT(reward({text, ""}), IsOkAndHolds(0.0)) << pattern;
  }
}

TEST(RegexReward, DoesAnHonestSearchOfALongText) {
  ASSERT_OK_AND_ASSIGN(const RewardFn reward, MakeRegexReward("answer:\\s*(\\d+)"));
  EXPECT_THAT(reward({std::string(200'000, ' ') + "answer: 7", ""}), IsOkAndHolds(1.0));
}

TEST(RegexReward, SearchesTextThatIsNoUtf8) {
  ASSERT_OK_AND_ASSIGN(const RewardFn reward, MakeRegexReward("18"));
  EXPECT_THAT(reward({"\xFF\xC3 18 \x80", ""}), IsOkAndHolds(1.0));
}

}  // namespace
}  // namespace tandem::reward
