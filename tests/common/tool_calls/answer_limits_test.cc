// Answers that would cost much, or calls that nobody asked for, are content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/common/tool_calls/answers.h"

namespace tandem::tool_calls {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Call(const std::string& arguments) {
  return absl::StrCat(R"(<tool_call>{"name": "f", "arguments": )", arguments, "}</tool_call>");
}

TEST(StreamParser, ACallThatIsTooLargeIsContent) {
  const std::string text = Call(absl::StrCat(R"({"x": ")", std::string(kMaxCallBytes, 'x'), "\"}"));
  const Answer answer = Parse(Hermes(), text);
  EXPECT_THAT(answer.calls, IsEmpty());
  EXPECT_EQ(answer.content, text);
  ASSERT_EQ(answer.problems.size(), 1);
  EXPECT_THAT(answer.problems[0].what, HasSubstr("1 MiB"));
}

TEST(StreamParser, ACallThatNestsTooDeeplyIsContent) {
  const auto nested = [](int depth) {
    return absl::StrCat("{\"x\": ", std::string(depth, '['), std::string(depth, ']'), "}");
  };
  EXPECT_EQ(Parse(Hermes(), Call(nested(kMaxCallDepth - 2))).calls.size(), 1);
  const Answer answer = Parse(Hermes(), Call(nested(kMaxCallDepth - 1)));
  EXPECT_THAT(answer.calls, IsEmpty());
  ASSERT_EQ(answer.problems.size(), 1);
  EXPECT_THAT(answer.problems[0].what, HasSubstr("64 levels"));
}

TEST(StreamParser, CallsBeyondTheLimitAreContent) {
  std::string text;
  for (int i = 0; i < 3; ++i) text += Call("{}");
  const Answer answer = Parse(Hermes(), text, /*max_calls=*/1);
  EXPECT_EQ(answer.calls.size(), 1);
  EXPECT_EQ(answer.content, Call("{}") + Call("{}"));
  ASSERT_EQ(answer.problems.size(), 1);
  EXPECT_EQ(answer.problems[0].what, "expected at most 1 calls");
  EXPECT_EQ(Parse(Mistral(), R"([TOOL_CALLS][{"name": "f"}, {"name": "g"}])", 1).calls.size(), 1);
}

TEST(StreamParser, ManyMalformedCallsEndTheSearch) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "<tool_call>{";
  const Answer answer = Parse(Hermes(), text);
  EXPECT_EQ(answer.content, text);
  EXPECT_EQ(answer.problems.size(), kMaxProblems);
}

TEST(StreamParser, SpecialTokensAreMarksAndNoContent) {
  const std::string text = "a<|x|><tool_call>{\"name\": \"f\"}</tool_call><|im_end|>";
  const Answer answer = ParseAnswer(
      Hermes(), text, {{1, 6}, {6, 17}, {text.size() - 10, text.size()}}, TestOptions());
  EXPECT_EQ(answer.content, "a");
  EXPECT_EQ(answer.calls.size(), 1);
}

TEST(StreamParser, SpaceBesideACallIsDroppedAndAllOtherKept) {
  EXPECT_EQ(Parse(Hermes(), " a \n").content, " a \n");
  EXPECT_EQ(Parse(Hermes(), " a \n" + Call("{}") + " \n").content, " a");
  EXPECT_EQ(Parse(Hermes(), "\n\n" + Call("{}") + "\n" + Call("{}")).content, "");
  EXPECT_EQ(Parse(Hermes(), Call("{}") + "\nb\n").content, "\nb\n");
  EXPECT_EQ(Parse(Hermes(), "\n\n").content, "\n\n");
}

}  // namespace
}  // namespace tandem::tool_calls
