// What each format reads, and what it says of text that only looks like a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/tool_calls/answers.h"

namespace tandem::tool_calls {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Hermes, ReadsCallsBetweenTexts) {
  const Answer answer =
      Parse(Hermes(),
            "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
            "{\"city\": \"Zürich\", \"x\": 1.50}}\n</tool_call>\n<tool_call>\n"
            "{\"name\": \"stop\"}\n</tool_call>\nDone.");
  EXPECT_EQ(answer.content, "Let me look.\nDone.");
  EXPECT_THAT(answer.calls,
              ElementsAre(ToolCall{"id0", "get_weather", "{\"city\": \"Zürich\", \"x\": 1.50}"},
                          ToolCall{"id1", "stop", "{}"}));
  EXPECT_THAT(answer.problems, IsEmpty());
}

TEST(Hermes, TakesArgumentsThatAreTextOfAnObject) {
  const Answer answer =
      Parse(Hermes(), R"(<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>)");
  EXPECT_THAT(answer.calls, ElementsAre(ToolCall{"id0", "f", R"({"x": 1})"}));
}

TEST(Hermes, LeavesAMalformedCallInTheContentAndReadsTheNext) {
  const std::string bad = R"(<tool_call>{"name": "a", "arguments": }</tool_call>)";
  const Answer answer =
      Parse(Hermes(), "x" + bad + R"(<tool_call>{"name": "b", "arguments": {}}</tool_call>)");
  EXPECT_EQ(answer.content, "x" + bad);
  EXPECT_THAT(answer.calls, ElementsAre(ToolCall{"id0", "b", "{}"}));
  ASSERT_EQ(answer.problems.size(), 1);
  EXPECT_EQ(answer.problems[0].offset, 12);
  EXPECT_THAT(answer.problems[0].what, HasSubstr("parse error"));
}

TEST(Hermes, SaysWhatIsWrongAndWhere) {
  const auto problem = [](const std::string& text) {
    const Answer answer = Parse(Hermes(), text);
    EXPECT_EQ(answer.content, text);
    EXPECT_THAT(answer.calls, IsEmpty());
    return answer.problems.empty() ? Problem() : answer.problems[0];
  };
  EXPECT_EQ(problem("<tool_call>f(x)</tool_call>"), (Problem{11, "expected a JSON object"}));
  EXPECT_EQ(problem(R"(<tool_call>{"arguments": {}}</tool_call>)"),
            (Problem{11, "expected the function's \"name\", a string"}));
  EXPECT_EQ(problem(R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)"),
            (Problem{11, "expected \"arguments\" to be an object, found array"}));
  EXPECT_EQ(problem(R"(<tool_call>{"name": "f", "arguments": {}}} </tool_call>)"),
            (Problem{41, "expected </tool_call> behind the call"}));
  EXPECT_EQ(problem(R"(<tool_call>{"name": "f")"), (Problem{23, "the answer ends within a call"}));
}

TEST(Llama3, ReadsABareObjectAndThoseBehindTheTag) {
  const std::string call = R"({"name": "get_weather", "parameters": {"city": "Rome"}})";
  const ToolCall expected{"id0", "get_weather", R"({"city": "Rome"})"};
  EXPECT_EQ(Parse(Llama3(), call).calls, std::vector{expected});
  const Answer tagged = Parse(Llama3(), "I look.\n<|python_tag|>" + call + "; " + call);
  EXPECT_EQ(tagged.content, "I look.");
  ASSERT_EQ(tagged.calls.size(), 2);
  EXPECT_EQ(tagged.calls[0], expected);
}

TEST(Llama3, AnAnswerInJsonIsContent) {
  for (const char* text : {R"({"name": "Bob", "age": 3})", "{\"a\": [1, {}]} \n", "{ not JSON",
                           R"(Text {"name": "f", "parameters": {}})"}) {
    const Answer answer = Parse(Llama3(), text);
    EXPECT_EQ(answer.content, text);
    EXPECT_THAT(answer.calls, IsEmpty());
    EXPECT_THAT(answer.problems, IsEmpty()) << text;
  }
  EXPECT_EQ(Parse(Llama3(), R"({"name": "f", "parameters": {"x": }})").problems.size(), 1);
  EXPECT_EQ(Parse(Llama3(), "<|python_tag|>search.call(x=1)").problems.size(), 1);
}

TEST(Mistral, ReadsTheListAndTheNewerForm) {
  const Answer list = Parse(
      Mistral(),
      R"(Hm.[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}, "id": "abcdefghi"}, {"name": "g"}])");
  EXPECT_EQ(list.content, "Hm.");
  EXPECT_THAT(list.calls,
              ElementsAre(ToolCall{"abcdefghi", "f", R"({"x": 1})"}, ToolCall{"id0", "g", "{}"}));
  const Answer newer =
      Parse(Mistral(),
            R"([TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]h{})");
  EXPECT_THAT(newer.calls,
              ElementsAre(ToolCall{"id0", "f", R"({"x": 1})"}, ToolCall{"abcdefghi", "g", "{}"},
                          ToolCall{"id1", "h", "{}"}));
}

TEST(DeepSeek, ReadsBothForms) {
  const std::string begin = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";
  const std::string end = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  const std::vector<ToolCall> expected = {{"id0", "get_weather", R"({"city": "Rome"})"}};
  const Answer v3 = Parse(DeepSeek(), "Hm." + begin +
                                          "function<｜tool▁sep｜>get_weather\n```json\n"
                                          R"({"city": "Rome"})"
                                          "\n```" +
                                          end);
  EXPECT_EQ(v3.calls, expected);
  EXPECT_EQ(v3.content, "Hm.");
  const Answer v31 =
      Parse(DeepSeek(), begin + R"(get_weather<｜tool▁sep｜>{"city": "Rome"})" + end);
  EXPECT_EQ(v31.calls, expected);
  EXPECT_EQ(v31.content, "");
}

TEST(Glm45, TypesValuesByTheSchema) {
  const Answer answer =
      Parse(Glm45(),
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n"
            "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n");
  EXPECT_THAT(answer.calls,
              ElementsAre(ToolCall{"id0", "get_weather", R"({"city":"12","days":3})"}));
  EXPECT_EQ(answer.content, "");
}

TEST(Qwen3Coder, TypesValuesByTheSchema) {
  const Answer answer =
      Parse(Qwen3Coder(),
            "Ok.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
            "<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>");
  EXPECT_THAT(answer.calls,
              ElementsAre(ToolCall{"id0", "get_weather", R"({"city":"New\nYork","exact":true})"}));
  EXPECT_EQ(answer.content, "Ok.");
}

TEST(Harmony, TellsReasoningContentAndCallsApart) {
  const Answer answer =
      Parse(Harmony(),
            "<|channel|>analysis<|message|>I "
            "think.<|end|><|start|>assistant<|channel|>commentary<|message|>"
            "I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
            "<|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>");
  EXPECT_EQ(answer.reasoning, "I think.");
  EXPECT_EQ(answer.content, "I look.");
  EXPECT_THAT(answer.calls, ElementsAre(ToolCall{"id0", "get_weather", R"({"city": "Rome"})"}));
  const Answer first = Parse(Harmony(), " to=functions.stop<|channel|>commentary<|message|>{}");
  EXPECT_THAT(first.calls, ElementsAre(ToolCall{"id0", "stop", "{}"}));
}

TEST(Harmony, ACallOfABuiltInToolIsContent) {
  const Answer answer = Parse(Harmony(), "<|channel|>commentary to=python<|message|>1<|call|>");
  EXPECT_THAT(answer.calls, IsEmpty());
  EXPECT_EQ(answer.content, "<|channel|>commentary to=python<|message|>1");
  ASSERT_EQ(answer.problems.size(), 1);
  EXPECT_THAT(answer.problems[0].what, HasSubstr("python"));
}

}  // namespace
}  // namespace tandem::tool_calls
