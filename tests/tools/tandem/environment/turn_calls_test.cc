#include "tools/tandem/environment/turn_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tool_calls/registry.h"

namespace tandem::environment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TurnCalls Parse(const std::string& text, bool is_ended = true) {
  return ParseTurnCalls(tool_calls::Hermes(), {.text = text}, is_ended, /*num_calls_before=*/7);
}

TEST(TurnCalls, FindsTheCallsOfATurnInOrder) {
  const TurnCalls found = Parse(R"(Let me see.
<tool_call>
{"name": "calculator", "arguments": {"expression": "48/2"}}
</tool_call>
<tool_call>{"name": "search", "arguments": "{\"q\": \"</b>\"}"}</tool_call>)");
  ASSERT_THAT(found.calls, SizeIs(2));
  EXPECT_EQ(found.calls[0].name, "calculator");
  EXPECT_EQ(found.calls[0].arguments["expression"], "48/2");
  EXPECT_EQ(found.calls[0].id, "call00008");
  EXPECT_EQ(found.calls[1].name, "search");
  EXPECT_EQ(found.calls[1].arguments["q"], "</b>");
  EXPECT_EQ(found.calls[1].id, "call00009");
  EXPECT_EQ(found.content, "Let me see.");
  EXPECT_THAT(found.problems, IsEmpty());
}

TEST(TurnCalls, SaysWhatIsWrongWithEachMalformedCall) {
  for (const auto& [text, problem] : std::initializer_list<std::pair<const char*, const char*>>{
           {"<tool_call>48/2</tool_call>", "expected a JSON object"},
           {"<tool_call></tool_call>", "expected a JSON object"},
           {R"(<tool_call>{"arguments": {}}</tool_call>)", "\"name\""},
           {R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)", "found array"},
           {R"(<tool_call>{"name": "f")", "ends within a call"}}) {
    const TurnCalls found = Parse(text);
    EXPECT_THAT(found.calls, IsEmpty()) << text;
    EXPECT_THAT(found.problems, ElementsAre(HasSubstr(problem))) << text;
  }
}

TEST(TurnCalls, AnIncompleteCallOfATurnThatGoesOnIsNeitherACallNorAProblem) {
  const TurnCalls found = Parse(
      R"(<tool_call>{"name": "f"}</tool_call><tool_call>{"name": "g", "arguments": {"x": "1=)",
      /*is_ended=*/false);
  ASSERT_THAT(found.calls, SizeIs(1));
  EXPECT_EQ(found.calls[0].arguments, nlohmann::ordered_json::object());
  EXPECT_THAT(found.problems, IsEmpty());
}

TEST(TurnCalls, MarksThatAreSpecialTokensAreNoContent) {
  const std::string mark = "[TOOL_CALLS]";
  const TurnCalls found = ParseTurnCalls(
      tool_calls::Mistral(),
      {.text = absl::StrCat("Hm. ", mark, R"([{"name": "f", "arguments": {"x": 1}}])"),
       .special = {{4, 4 + mark.size()}}},
      /*is_ended=*/true, 0);
  ASSERT_THAT(found.calls, SizeIs(1));
  EXPECT_EQ(found.calls[0].name, "f");
  EXPECT_EQ(found.calls[0].id, "call00001");
  EXPECT_EQ(found.content, "Hm.");
}

}  // namespace
}  // namespace tandem::environment
