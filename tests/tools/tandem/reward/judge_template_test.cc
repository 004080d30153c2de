#include "tools/tandem/reward/judge_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(JudgeTemplate, FillsItsPlaceholdersWhereverTheyStand) {
  ASSERT_OK_AND_ASSIGN(const JudgeTemplate text,
                       JudgeTemplate::Parse("{completion}{prompt} {{completion}} {x}", "key"));
  EXPECT_EQ(text.Fill({.prompt = "P", .completion = "C"}), "CP {C} {x}");
  EXPECT_FALSE(text.needs_answer());
}

TEST(JudgeTemplate, ReadsNoPlaceholdersInWhatItInserts) {
  ASSERT_OK_AND_ASSIGN(const JudgeTemplate text,
                       JudgeTemplate::Parse("{prompt}/{completion}/{answer}", "key"));
  EXPECT_EQ(text.Fill({.prompt = "{completion}", .completion = "{answer}", .answer = "{prompt}"}),
            "{completion}/{answer}/{prompt}");
  EXPECT_TRUE(text.needs_answer());
}

TEST(JudgeTemplate, TheDefaultShowsAnAnswerWhereThereIsOne) {
  ASSERT_OK_AND_ASSIGN(const JudgeTemplate text, JudgeTemplate::Parse("", "key"));
  EXPECT_FALSE(text.needs_answer());
  EXPECT_THAT(text.Fill({.prompt = "P1", .completion = "C1", .answer = "A1"}),
              AllOf(HasSubstr("P1"), HasSubstr("C1"), HasSubstr("A1"), HasSubstr("Score: ")));
  EXPECT_THAT(text.Fill({.prompt = "P1", .completion = "C1"}),
              AllOf(HasSubstr("C1"), Not(HasSubstr("reference answer"))));
}

TEST(JudgeTemplate, NeedsSomethingToJudge) {
  EXPECT_THAT(JudgeTemplate::Parse("Grade {prompt}", "reward.judge.template"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("reward.judge.template: expected {completion}")));
}

}  // namespace
}  // namespace tandem::reward
