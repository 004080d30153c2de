#include "tools/tandem/environment/hermes_tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::environment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(HermesToolCalls, FindsTheCallsOfATurnInOrder) {
  const ToolCalls found = ParseHermesToolCalls(R"(Let me see.
<tool_call>
{"name": "calculator", "arguments": {"expression": "48/2"}}
</tool_call>
<tool_call>{"name": "search", "arguments": "{\"q\": \"</b>\"}"}</tool_call>)");
  ASSERT_THAT(found.calls, SizeIs(2));
  EXPECT_EQ(found.calls[0].name, "calculator");
  EXPECT_EQ(found.calls[0].arguments["expression"], "48/2");
  EXPECT_EQ(found.calls[1].name, "search");
  EXPECT_EQ(found.calls[1].arguments["q"], "</b>");
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_FALSE(found.is_open);
}

TEST(HermesToolCalls, SaysWhatIsWrongWithEachMalformedCall) {
  for (const auto& [text, problem] : std::initializer_list<std::pair<const char*, const char*>>{
           {"<tool_call>{\"name\": \"f\", </tool_call>", "expected {\"name\": "},
           {"<tool_call>48/2</tool_call>", "found no name"},
           {"<tool_call></tool_call>", "expected {\"name\": "},
           {"<tool_call>{\"arguments\": {}}</tool_call>", "found no name"},
           {"<tool_call>{\"name\": 3}</tool_call>", "found no name"},
           {"<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
            "arguments of f: expected an object, found array"},
           {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>",
            "arguments of f: "}}) {
    const ToolCalls found = ParseHermesToolCalls(text);
    EXPECT_THAT(found.calls, IsEmpty()) << text;
    EXPECT_THAT(found.problems, ElementsAre(HasSubstr(problem))) << text;
  }
}

TEST(HermesToolCalls, ACallThatIsNotClosedIsNeitherACallNorAProblem) {
  const ToolCalls found = ParseHermesToolCalls("<tool_call>{\"name\": \"f\"}");
  EXPECT_TRUE(found.is_open);
  EXPECT_THAT(found.calls, IsEmpty());
  EXPECT_THAT(found.problems, IsEmpty());
}

TEST(HermesToolCalls, ACallWithoutArgumentsHasNone) {
  const ToolCalls found = ParseHermesToolCalls("<tool_call>{\"name\": \"now\"}</tool_call>");
  ASSERT_THAT(found.calls, SizeIs(1));
  EXPECT_EQ(found.calls[0].arguments, nlohmann::ordered_json::object());
}

}  // namespace
}  // namespace tandem::environment
