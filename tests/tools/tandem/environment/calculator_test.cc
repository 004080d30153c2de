#include "tools/tandem/environment/calculator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::environment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Reply Step(const SampledTurn& turn, bool in_chat = false) {
  const auto reply = MakeCalculator(in_chat)->Step(turn, nullptr);
  EXPECT_TRUE(reply.has_value());
  EXPECT_OK(reply->status());
  return **reply;
}

TEST(Calculator, CompletesTheNotationOfGsm8k) {
  const Reply reply = Step({.text = "In May she sold 48/2 = <<48/2="});
  EXPECT_EQ(reply.continuation, "24>>");
  EXPECT_EQ(reply.num_tool_calls, 1);
  EXPECT_EQ(reply.num_malformed_calls, 0);
  EXPECT_FALSE(reply.done);
}

TEST(Calculator, TellsWhatIsWrongWithANotation) {
  const Reply reply = Step({.text = "so <<3+*2="});
  EXPECT_EQ(reply.continuation, "error: expected a number, found \"*2\">>");
  EXPECT_EQ(reply.num_malformed_calls, 1);
}

TEST(Calculator, LeavesAnEquationOutsideTheNotationToThePolicy) {
  for (const char* text : {"48/2 =", "<<48/2=24>> and 1+1=", "<<a=b="}) {
    const Reply reply = Step({.text = text});
    EXPECT_TRUE(reply.goes_on) << text;
    EXPECT_THAT(reply.continuation, IsEmpty()) << text;
    EXPECT_FALSE(reply.done) << text;
  }
}

TEST(Calculator, AnswersEachToolCall) {
  const Reply reply = Step({.text = "",
                            .is_ended = true,
                            .tool_calls = {{"", "calculator", {{"expression", "(1+2)*3"}}},
                                           {"", "calculator", {{"expression", "1/0"}}},
                                           {"", "calculator", {{"formula", "1"}}},
                                           {"", "search", {{"q", "x"}}}}},
                           /*in_chat=*/true);
  std::vector<std::string> contents;
  for (const auto& message : reply.messages) {
    EXPECT_EQ(message["role"], "tool");
    contents.push_back(message["content"]);
  }
  EXPECT_THAT(contents, ElementsAre("9", "error: division by zero",
                                    HasSubstr("expected the argument expression"),
                                    HasSubstr("no function \"search\"")));
  EXPECT_EQ(reply.num_tool_calls, 4);
  EXPECT_EQ(reply.num_malformed_calls, 3);
  EXPECT_FALSE(reply.done);
}

TEST(Calculator, EndsAnEpisodeThatCallsNothing) {
  EXPECT_TRUE(Step({.text = "#### 72", .is_ended = true}).done);
  EXPECT_TRUE(Step({.text = "<<48/2=", .is_cut = true}).done);
  EXPECT_TRUE(Step({.text = "The answer is 72.", .is_ended = true}, /*in_chat=*/true).done);
}

TEST(Calculator, StopsAtItsNotationOutsideAChat) {
  EXPECT_THAT(MakeCalculator(false)->stop(), ElementsAre("=", "</tool_call>"));
  EXPECT_THAT(MakeCalculator(true)->stop(), IsEmpty());
}

}  // namespace
}  // namespace tandem::environment
