#include "tools/tandem/reward/gsm8k.h"

#include <gtest/gtest.h>

#include <string>

#include "common/io/jsonl.h"
#include "common/status/status_macros.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<double> Gsm8k(std::string completion, std::string answer) {
  return kGsm8kReward.make({}).value()({std::move(completion), std::move(answer)});
}

TEST(Gsm8kReward, ComparesTheLastNumberWithTheOneAfterTheMark) {
  const std::string answer = "She has 16 - 3 - 4 = <<16-3-4=9>>9 eggs.\n#### 18";
  EXPECT_THAT(Gsm8k("9 * 2 = 18", answer), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("#### 18", answer), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("She makes $18.00 every day.", answer), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("18 or rather 9", answer), IsOkAndHolds(0.0));
  EXPECT_THAT(Gsm8k("", answer), IsOkAndHolds(0.0));
  EXPECT_THAT(Gsm8k("eighteen", answer), IsOkAndHolds(0.0));
}

TEST(Gsm8kReward, TakesAnAnswerWithoutAMarkAsItIs) {
  EXPECT_THAT(Gsm8k("The total is 1450000 dollars.", "1,450,000"), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("-10", "$-10"), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("10", "-10"), IsOkAndHolds(0.0));
}

TEST(Gsm8kReward, PrefersTheLastBox) {
  EXPECT_THAT(Gsm8k("\\boxed{18} is 2 more than 16", "#### 18"), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("\\boxed{17}, no, \\boxed{18}.", "#### 18"), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("\\boxed{18}, no, \\boxed{17}.", "#### 18"), IsOkAndHolds(0.0));
  EXPECT_THAT(Gsm8k("$\\boxed{\\text{about }\\$1{,}000\\text{ dollars}}$ in 3 days", "#### 1,000"),
              IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("I put it in \\boxed{}: 18", "#### 18"), IsOkAndHolds(1.0));
}

TEST(Gsm8kReward, LooksPastABoxThatWasCutOff) {
  EXPECT_THAT(Gsm8k("\\boxed{18} and again \\boxed{1", "#### 18"), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("so it is \\boxed{18", "#### 18"), IsOkAndHolds(1.0));
}

TEST(Gsm8kReward, DoesNotTakeADenominatorForTheAnswer) {
  EXPECT_THAT(Gsm8k("\\boxed{\\frac{36}{2}}", "#### 2"), IsOkAndHolds(0.0));
}

TEST(Gsm8kReward, ComparesDigitsRatherThanFloatingPoint) {
  EXPECT_THAT(Gsm8k("0.30", "0.3"), IsOkAndHolds(1.0));
  EXPECT_THAT(Gsm8k("9007199254740993", "9007199254740992"), IsOkAndHolds(0.0));
}

TEST(Gsm8kReward, RefusesARowWithoutANumber) {
  EXPECT_THAT(Gsm8k("18", "yes"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found \"yes\"")));
  EXPECT_THAT(Gsm8k("18", "18 ####"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
}

TEST(Gsm8kReward, GivesEveryPublishedSolutionOneAgainstItself) {
  SKIP_WITHOUT_DATA("gsm8k/test.jsonl");
  int num_rows = 0;
  for (const char* file : {"gsm8k/test.jsonl", "gsm8k/train.jsonl"}) {
    ASSERT_OK(io::ForEachJsonLine(
        tandem::testing::TestData(file), [&](const io::JsonFields& row) -> absl::Status {
          ASSIGN_OR_RETURN(const std::string answer, row.String("answer"));
          const std::string final_part = answer.substr(answer.rfind("####") + 4);
          EXPECT_THAT(Gsm8k(answer, answer), IsOkAndHolds(1.0)) << row.place() << "\n" << answer;
          EXPECT_THAT(Gsm8k("The answer is $\\boxed{" + final_part + "}$.", answer),
                      IsOkAndHolds(1.0))
              << row.place();
          EXPECT_THAT(Gsm8k(answer + "7", answer), IsOkAndHolds(0.0)) << row.place();
          ++num_rows;
          return absl::OkStatus();
        }));
  }
  EXPECT_EQ(num_rows, 1319 + 7473);
}

TEST(LastBoxed, MatchesBracesAndPassesEscapedOnes) {
  EXPECT_EQ(LastBoxed("\\boxed{a{b}c}d}"), "a{b}c");
  EXPECT_EQ(LastBoxed("\\boxed {x}"), "x");
  EXPECT_EQ(LastBoxed("\\boxed{\\{1\\}}"), "\\{1\\}");
  EXPECT_EQ(LastBoxed("\\boxed{\\boxed{5}}"), "5");
  EXPECT_EQ(LastBoxed("\\fbox{5} {6}"), std::nullopt);
  EXPECT_EQ(LastBoxed("}}\\boxed{5}"), "5");
}

TEST(LastBoxed, TakesLinearTimeOnBoxesThatNeverClose) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "\\boxed{";
  EXPECT_EQ(LastBoxed(text), std::nullopt);
}

}  // namespace
}  // namespace tandem::reward
