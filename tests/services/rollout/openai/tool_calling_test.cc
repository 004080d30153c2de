// Chats with tools, from the body to the prompt.
#include "services/rollout/openai/tool_calling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tool_calls/registry.h"
#include "services/rollout/openai/api_error.h"
#include "services/rollout/openai/completion_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_model.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "stop"}}])";

class ToolCallingTest : public ::testing::Test {
 protected:
  void SetUp() override { UseTemplate("{{ messages | tojson }}{{ tools | tojson }}"); }

  void UseTemplate(const std::string& text) {
    testing::WriteTinyModel(folder_);
    folder_.Write("model/chat_template.jinja", text);
    ASSERT_OK_AND_ASSIGN(tokenizer_, tokenizer::Tokenizer::Load(folder_ / "model"));
  }

  absl::StatusOr<CompletionRequest> Parse(
      const std::string& rest, const tool_calls::Format* format = &tool_calls::Hermes(),
      const std::string& messages = R"([{"role": "user", "content": "?"}])") {
    const std::string body = R"({"messages": )" + messages + rest + "}";
    return ParseCompletionRequest(ordered_json::parse(body), /*chat=*/true, tokenizer_.get(),
                                  {.tool_call_format = format});
  }

  // The prompt, of messages that a template of the test renders.
  std::string Prompt(const std::string& messages, const std::string& rest = "") {
    const auto request = Parse(rest, &tool_calls::Hermes(), messages);
    return request.ok() ? request->prompts[0].text : std::string(request.status().message());
  }

  std::string ErrorOf(const std::string& rest,
                      const tool_calls::Format* format = &tool_calls::Hermes()) {
    const auto request = Parse(rest, format);
    if (request.ok()) return "none";
    EXPECT_EQ(HttpCode(request.status()), 400);
    const ordered_json error = ErrorBody(request.status())["error"];
    return error["param"].get<std::string>() + "|" + error["message"].get<std::string>();
  }

  static std::string With(const std::string& more) {
    return std::string(", \"tools\": ") + kTools + more;
  }

  const testing::TempFolder folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

TEST_F(ToolCallingTest, ToolsGoToTheTemplateAndCallsAreRead) {
  ASSERT_OK_AND_ASSIGN(const CompletionRequest request, Parse(With("")));
  EXPECT_THAT(request.prompts[0].text, HasSubstr("get_weather"));
  EXPECT_EQ(request.tool_calling.format, &tool_calls::Hermes());
  EXPECT_EQ(request.tool_calling.schemas.size(), 2);
  EXPECT_EQ(request.tool_calling.max_calls, tool_calls::kMaxCalls);
  EXPECT_TRUE(request.generation.show_special_tokens);
  EXPECT_EQ(request.tool_calling.forced_text, "");
}

TEST_F(ToolCallingTest, WithoutToolsOrByNoneCallsStayText) {
  for (const std::string& rest :
       {std::string(), std::string(", \"tools\": []"), With(R"(, "tool_choice": "none")")}) {
    ASSERT_OK_AND_ASSIGN(const CompletionRequest request, Parse(rest));
    EXPECT_EQ(request.tool_calling.format, nullptr) << rest;
    EXPECT_FALSE(request.generation.show_special_tokens);
  }
}

TEST_F(ToolCallingTest, ACallIsForcedByTheTextThatBeginsIt) {
  ASSERT_OK_AND_ASSIGN(const CompletionRequest any, Parse(With(R"(, "tool_choice": "required")")));
  EXPECT_EQ(any.tool_calling.forced_text, "<tool_call>\n{\"name\": \"");
  EXPECT_TRUE(any.prompts[0].text.ends_with(any.tool_calling.forced_text));
  ASSERT_OK_AND_ASSIGN(
      const CompletionRequest one,
      Parse(With(R"(, "tool_choice": {"type": "function", "function": {"name": "stop"}})")));
  EXPECT_TRUE(one.prompts[0].text.ends_with("{\"name\": \"stop\", \"arguments\":"));
  EXPECT_EQ(one.tool_calling.max_calls, 1);
}

TEST_F(ToolCallingTest, ParallelCallsCanBeTurnedOff) {
  ASSERT_OK_AND_ASSIGN(const CompletionRequest request,
                       Parse(With(R"(, "parallel_tool_calls": false)")));
  EXPECT_EQ(request.tool_calling.max_calls, 1);
}

TEST_F(ToolCallingTest, ErrorsNameTheField) {
  EXPECT_THAT(ErrorOf(R"(, "tools": {})"), HasSubstr("tools|"));
  EXPECT_THAT(ErrorOf(R"(, "tools": [{"type": "retrieval"}])"), HasSubstr("tools[0]|"));
  EXPECT_THAT(ErrorOf(R"(, "tools": [{"type": "function", "function": {"name": "a b"}}])"),
              HasSubstr("tools[0].function.name|"));
  EXPECT_THAT(
      ErrorOf(R"(, "tools": [{"type": "function", "function": {"name": "a", "parameters": 1}}])"),
      HasSubstr("tools[0].function.parameters|"));
  EXPECT_THAT(ErrorOf(R"(, "tool_choice": "required")"), HasSubstr("tool_choice|"));
  EXPECT_THAT(ErrorOf(With(R"(, "tool_choice": "always")")), HasSubstr("tool_choice|"));
  EXPECT_THAT(
      ErrorOf(With(R"(, "tool_choice": {"type": "function", "function": {"name": "other"}})")),
      HasSubstr("expected a function of tools, found \"other\""));
  EXPECT_THAT(ErrorOf(With(R"(, "parallel_tool_calls": 1)")), HasSubstr("parallel_tool_calls|"));
}

TEST_F(ToolCallingTest, ACallThatCannotBeForcedIsRefusedByName) {
  const std::string required = With(R"(, "tool_choice": "required")");
  EXPECT_THAT(ErrorOf(required, nullptr), HasSubstr("--tool-call-parser"));
  EXPECT_THAT(ErrorOf(required, &tool_calls::Mistral()), HasSubstr("mistral"));
  EXPECT_EQ(ErrorOf(With(""), nullptr), "none") << "calls stay text";
}

TEST_F(ToolCallingTest, ArgumentsAreObjectsForTheTemplate) {
  UseTemplate(
      "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
      "{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
      "{% endfor %}){% endfor %}{% elif m.role == 'tool' %}[{{ m.tool_call_id }}:{{ m.content }}]"
      "{% endif %}{% endfor %}");
  const std::string rest = R"("}}, {"id": "b", "type": "function",
      "function": {"name": "stop", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "12"}]}])";
  EXPECT_EQ(Prompt(R"([{"role": "user", "content": "?"}, {"role": "assistant", "content": null,
      "tool_calls": [{"id": "a", "type": "function", "function": {"name": "get_weather",
      "arguments": "{\"city\": \"Rome\"})" +
                   rest),
            "get_weather(city=Rome)stop()[a:12]");
}

TEST_F(ToolCallingTest, ATemplateThatWantsTextGetsTheArgumentsAsText) {
  UseTemplate("{{ 'call ' + messages[0].tool_calls[0].function.arguments }}");
  const std::string begin = R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f",
      "arguments": )";
  EXPECT_EQ(Prompt(begin + R"("{\"x\":  1}"}}]}])"), "call {\"x\":  1}");
  EXPECT_EQ(Prompt(begin + R"({"x": 1}}}]}])"), "call {\"x\":1}");
}

TEST_F(ToolCallingTest, MalformedMessagesAreRefusedByName) {
  const auto message = [&](const std::string& calls) {
    return Prompt(R"([{"role": "assistant", "tool_calls": )" + calls + "}]");
  };
  EXPECT_THAT(message("1"), HasSubstr("messages[0].tool_calls"));
  EXPECT_THAT(message(R"([{"id": "a"}])"), HasSubstr("messages[0].tool_calls[0]"));
  EXPECT_THAT(message(R"([{"function": {"name": "f", "arguments": "{"}}])"),
              HasSubstr("messages[0].tool_calls[0].function.arguments"));
  EXPECT_THAT(message(R"([{"function": {"name": "f", "arguments": "[1]"}}])"),
              HasSubstr("expected a JSON object"));
  EXPECT_THAT(Prompt(R"([{"role": "tool", "tool_call_id": 7, "content": ""}])"),
              HasSubstr("messages[0].tool_call_id"));
}

TEST_F(ToolCallingTest, TheFormatIsNamedOrTheTemplates) {
  EXPECT_THAT(ChooseFormat("mistral", tokenizer_.get()),
              testing::IsOkAndHolds(&tool_calls::Mistral()));
  EXPECT_THAT(ChooseFormat("none", tokenizer_.get()), testing::IsOkAndHolds(nullptr));
  EXPECT_THAT(ChooseFormat("auto", tokenizer_.get()), testing::IsOkAndHolds(nullptr));
  EXPECT_THAT(ChooseFormat("auto", nullptr), testing::IsOkAndHolds(nullptr));
  UseTemplate("{{ '[TOOL_CALLS]' }}");
  EXPECT_THAT(ChooseFormat("auto", tokenizer_.get()),
              testing::IsOkAndHolds(&tool_calls::Mistral()));
  EXPECT_THAT(ChooseFormat("mistal", nullptr),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mistral")));
}

}  // namespace
}  // namespace tandem::rollout::openai
