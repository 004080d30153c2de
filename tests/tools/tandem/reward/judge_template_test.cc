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

// The request without images.
std::string TextOf(const JudgeTemplate& text, const JudgedText& judged) {
  const std::vector<JudgePart> parts = text.Fill(judged);
  EXPECT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts.front().image, nullptr);
  return parts.front().text;
}

TEST(JudgeTemplate, FillsItsPlaceholdersWhereverTheyStand) {
  ASSERT_OK_AND_ASSIGN(const JudgeTemplate text,
                       JudgeTemplate::Parse("{completion}{prompt} {{completion}} {x}", "key"));
  EXPECT_EQ(TextOf(text, {.prompt = "P", .completion = "C"}), "CP {C} {x}");
  EXPECT_FALSE(text.needs_answer());
}

TEST(JudgeTemplate, ReadsNoPlaceholdersInWhatItInserts) {
  ASSERT_OK_AND_ASSIGN(const JudgeTemplate text,
                       JudgeTemplate::Parse("{prompt}/{completion}/{answer}", "key"));
  EXPECT_EQ(
      TextOf(text, {.prompt = "{completion}", .completion = "{answer}", .answer = "{prompt}"}),
      "{completion}/{answer}/{prompt}");
  EXPECT_TRUE(text.needs_answer());
}

TEST(JudgeTemplate, TheDefaultShowsAnAnswerWhereThereIsOne) {
  ASSERT_OK_AND_ASSIGN(const JudgeTemplate text, JudgeTemplate::Parse("", "key"));
  EXPECT_FALSE(text.needs_answer());
  EXPECT_THAT(TextOf(text, {.prompt = "P1", .completion = "C1", .answer = "A1"}),
              AllOf(HasSubstr("P1"), HasSubstr("C1"), HasSubstr("A1"), HasSubstr("Score: ")));
  EXPECT_THAT(TextOf(text, {.prompt = "P1", .completion = "C1"}),
              AllOf(HasSubstr("C1"), Not(HasSubstr("reference answer"))));
}

TEST(JudgeTemplate, ImagesStandWhereTheTextsHaveThem) {
  ASSERT_OK_AND_ASSIGN(const JudgeTemplate text,
                       JudgeTemplate::Parse("<{prompt}>{completion}", "key"));
  JudgedText judged = {.prompt = "a[]b", .completion = "c"};
  judged.prompt_images = {{.begin = 0, .end = 0}, {.begin = 1, .end = 3}};
  judged.completion_images = {{.begin = 1, .end = 1}, {.begin = 1, .end = 1}};
  const std::vector<JudgePart> parts = text.Fill(judged);
  std::vector<std::string> found;
  for (const JudgePart& part : parts) found.push_back(part.image == nullptr ? part.text : "IMAGE");
  EXPECT_THAT(found, ::testing::ElementsAre("<", "IMAGE", "a", "IMAGE", "b>c", "IMAGE", "IMAGE"));
  EXPECT_EQ(parts[3].image, &judged.prompt_images[1]);
}

TEST(JudgeTemplate, NeedsSomethingToJudge) {
  EXPECT_THAT(JudgeTemplate::Parse("Grade {prompt}", "reward.judge.template"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("reward.judge.template: expected {completion}")));
}

}  // namespace
}  // namespace tandem::reward
