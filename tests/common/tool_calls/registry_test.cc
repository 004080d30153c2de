#include "common/tool_calls/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tokenizer/tokenizer.h"
#include "common/tool_calls/call_id.h"
#include "tests/common/tool_calls/answers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::tool_calls {
namespace {

using ::testing::HasSubstr;

std::string NameFor(absl::string_view chat_template) {
  const Format* format = DetectFormat(chat_template);
  return format == nullptr ? "none" : format->name;
}

TEST(ToolCallFormats, AreKnownByTheTextsOfChatTemplates) {
  EXPECT_EQ(NameFor("{{- '<tool_call>\\n{\"name\": \"' }}{{ tool_call.arguments | tojson }}"),
            "hermes");
  EXPECT_EQ(NameFor("<tool_call>{{ tc.name }}<arg_key>{{ k }}</arg_key> arguments"), "glm45");
  EXPECT_EQ(NameFor("<tool_call>\n<function={{ f.name }}> arguments"), "qwen3_coder");
  EXPECT_EQ(NameFor("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + type"), "deepseek");
  EXPECT_EQ(NameFor("<|start|>assistant to=functions.{{ n }}<|channel|>"), "harmony");
  EXPECT_EQ(NameFor("[AVAILABLE_TOOLS] [TOOL_CALLS]"), "mistral");
  EXPECT_EQ(NameFor("Environment: ipython {\"name\": \"f\", \"parameters\": {}}"), "llama3");
  EXPECT_EQ(NameFor("{% for m in messages %}{{ m.content }}{% endfor %}"), "none");
}

TEST(ToolCallFormats, AreKnownByTheTemplatesOfModels) {
  SKIP_WITHOUT_DATA("tokenizers/qwen3");
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       tokenizer::Tokenizer::Load(testing::TestData("tokenizers/qwen3")));
  ASSERT_NE(tokenizer->chat_template(/*with_tools=*/true), nullptr);
  EXPECT_EQ(NameFor(*tokenizer->chat_template(/*with_tools=*/true)), "hermes");
}

// What a template writes is what its format reads.
TEST(ToolCallFormats, ReadWhatTheTemplateOfAModelWrites) {
  SKIP_WITHOUT_DATA("tokenizers/qwen3");
  using Json = nlohmann::ordered_json;
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       tokenizer::Tokenizer::Load(testing::TestData("tokenizers/qwen3")));
  const Json messages = Json::parse(R"([{"role": "user", "content": "?"},
      {"role": "assistant", "content": "Two calls.", "tool_calls": [
        {"function": {"name": "f", "arguments": {"s": "</tool_call> é\n", "x": [1.5, null]}}},
        {"function": {"name": "g", "arguments": {}}}]}])");
  ASSERT_OK_AND_ASSIGN(const std::string text, tokenizer->RenderChat(messages, {}));

  const size_t begin = text.find("Two calls.");
  const Answer answer =
      Parse(Hermes(), absl::string_view(text).substr(begin, text.rfind("<|im_end|>") - begin));

  EXPECT_EQ(answer.content, "Two calls.");
  ASSERT_EQ(answer.calls.size(), 2);
  EXPECT_EQ(Json::parse(answer.calls[0].arguments),
            messages[1]["tool_calls"][0]["function"]["arguments"]);
  EXPECT_EQ(answer.calls[1].name, "g");
}

TEST(ToolCallFormats, AreFoundByName) {
  for (const Format* format : Formats()) {
    EXPECT_THAT(FindFormat(format->name), testing::IsOkAndHolds(format));
  }
  EXPECT_THAT(FindFormat("hermse"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hermes")));
}

// A forced call that the model completes is a call.
TEST(ToolCallFormats, ReadCallsThatBeginWithTheForcedText) {
  const std::map<std::string, std::string> rest = {
      {"hermes", " {\"x\": 1}}\n</tool_call>"},
      {"llama3", " {\"x\": 1}}"},
      {"glm45", "<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>"},
      {"qwen3_coder", "<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"}};
  int forced = 0;
  for (const Format* format : Formats()) {
    if (format->forced_text == nullptr) continue;
    ++forced;
    const Answer answer = Parse(*format, format->forced_text("f") + rest.at(format->name));
    ASSERT_EQ(answer.calls.size(), 1) << format->name;
    EXPECT_EQ(answer.calls[0].name, "f");
    EXPECT_EQ(answer.calls[0].arguments.find("{\"x\":"), 0) << answer.calls[0].arguments;
    const std::string any = format->forced_text(""), named = format->forced_text("f");
    EXPECT_EQ(named.compare(0, any.size(), any), 0) << format->name;
  }
  EXPECT_EQ(forced, rest.size());
}

TEST(CallIds, HaveTheLengthThatTemplatesWant) {
  EXPECT_EQ(NewCallId(Mistral()).size(), 9);
  EXPECT_EQ(NewCallId(Hermes()).substr(0, 5), "call_");
  EXPECT_NE(NewCallId(Hermes()), NewCallId(Hermes()));
}

}  // namespace
}  // namespace tandem::tool_calls
