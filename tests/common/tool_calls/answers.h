// Answers of models in each format, and a parser of them whose ids can be compared.
#ifndef TANDEM_TESTS_COMMON_TOOL_CALLS_ANSWERS_H_
#define TANDEM_TESTS_COMMON_TOOL_CALLS_ANSWERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tool_calls/registry.h"
#include "common/tool_calls/stream_parser.h"

namespace tandem::tool_calls {

// Two functions, whose parameters have every kind of type.
inline Schemas TestSchemas() {
  using Json = nlohmann::ordered_json;
  const Json weather = Json::parse(R"({"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "zip": {"type": ["string", "null"]},
      "tags": {"type": "array"}, "exact": {"type": "boolean"}}})");
  return {{"get_weather", weather}, {"stop", Json::object()}};
}

// Ids count calls.
inline ParserOptions TestOptions(int max_calls = kMaxCalls) {
  auto next = std::make_shared<int>(0);
  return {.schemas = TestSchemas(), .max_calls = max_calls, .new_id = [next] {
            return "id" + std::to_string((*next)++);
          }};
}

inline Answer Parse(const Format& format, absl::string_view text, int max_calls = kMaxCalls) {
  return ParseAnswer(format, text, {}, TestOptions(max_calls));
}

struct TestAnswer {
  const Format* format;
  std::string text;
};

// Right and wrong ones, with text around them.
inline std::vector<TestAnswer> TestAnswers() {
  const std::string ds_begin = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";
  const std::string ds_end = "<｜tool▁call▁end｜>";
  const std::string ds_all_end = "<｜tool▁calls▁end｜>";
  const std::string sep = "<｜tool▁sep｜>";
  std::vector<TestAnswer> out;
  for (const Format* format : Formats()) {
    for (const char* text :
         {"", " \n", "Plain text.", "{\"a\": [1, 2]} and {", "<tool_cal", "a <tool_call> b",
          "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|channel|>", "<｜tool▁call",
          "Über <｜ 1 < 2 [TOOL_ <|end|> é\n\n"}) {
      out.push_back({format, text});
    }
  }
  for (const char* text :
       {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"x\": "
        "1.50}}\n"
        "</tool_call>",
        "Let me look.\n<tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>\n<tool_call>\n"
        "{\"arguments\": {\"s\": \"</tool_call> }{\\\"\"}, \"name\": "
        "\"get_weather\"}\n</tool_call> Done.\n",
        "<tool_call>{\"name\": \"a\", \"arguments\": }</tool_call> and "
        "<tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": {}} x</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": {}}", "<tool_call>{\"name\": \"a\", \"argum",
        "<tool_call><tool_call>{\"name\": \"a\"}</tool_call>\n\n"}) {
    out.push_back({&Hermes(), text});
  }
  for (const char* text :
       {"{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}",
        "\n <|python_tag|>{\"name\": \"stop\", \"parameters\": {}}; {\"type\": \"function\", "
        "\"name\": "
        "\"get_weather\", \"parameters\": {\"days\": 3}}",
        "I look. <|python_tag|>{\"name\": \"stop\", \"parameters\": {}} ok",
        "{\"name\": \"Bob\", \"age\": 3}", "{\"name\": \"f\", \"parameters\": {\"x\": }}",
        "<|python_tag|>brave_search.call(query=\"x\")",
        "{\"name\": \"f\", \"parameters\": {\"x\": 1",
        "{\"name\": \"stop\", \"parameters\": {}} ; and text", "{}{}",
        "  {\"name\": \"stop\", \"parameters\": {}}\n;\n"}) {
    out.push_back({&Llama3(), text});
  }
  for (const char* text :
       {"[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}, \"id\": "
        "\"abcdefghi\"}, {\"name\": \"stop\", \"arguments\": {}}]",
        "Hm.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"[ARGS]\"}[TOOL_CALLS]stop[CALL_ID]x1[ARGS]{}",
        "[TOOL_CALLS]stop{}", "[TOOL_CALLS]stop {} tail", "[TOOL_CALLS]stop[ARG]{}",
        "[TOOL_CALLS] []", "[TOOL_CALLS] [1]", "[TOOL_CALLS]stop[ARGS]{\"a\": b}",
        "[TOOL_CALLS]![TOOL_CALLS]stop[ARGS]{}", "[TOOL_CALLS]st"}) {
    out.push_back({&Mistral(), text});
  }
  for (const std::string& text :
       {ds_begin + "function" + sep + "get_weather\n```json\n{\"city\": \"Rome\"}\n```" + ds_end +
            "\n<｜tool▁call▁begin｜>function" + sep + "stop\n```json\n{}\n```" + ds_end +
            ds_all_end,
        "Hm.\n" + ds_begin + "get_weather" + sep + "{\"city\": \"```\"}" + ds_end +
            "<｜tool▁call▁begin｜>stop" + sep + "{}" + ds_end + ds_all_end + "\n",
        ds_begin + "stop" + sep + "{}", ds_begin + "stop" + sep + "{\"a\" 1}" + ds_end + ds_all_end,
        ds_begin + "stop{}" + ds_end, ds_begin + "function" + sep + "stop\n{}" + ds_end,
        ds_begin + std::string(300, 'n') + sep + "{}" + ds_end, ds_all_end + " x"}) {
    out.push_back({&DeepSeek(), text});
  }
  for (const char* text :
       {"<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>New\nYork</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        "Hm.\n<tool_call>stop\n</tool_call>\n<tool_call>stop</tool_call>",
        "<tool_call>get_weather\n<arg_key>city</arg_key><arg_value>12</arg_value><arg_key>tags</"
        "arg_key>"
        "<arg_value>[\"a\"]</arg_value></tool_call> end",
        "<tool_call>f\n<arg_key>x</arg_key>\n</tool_call>", "<tool_call>f\nx\n</tool_call>",
        "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1"}) {
    out.push_back({&Glm45(), text});
  }
  for (const char* text :
       {"<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork\n</"
        "parameter>\n<parameter=exact>"
        "\nTrue\n</parameter>\n</function>\n</tool_call>",
        "Hm.\n<function=stop>\n</function>\n<tool_call><function=stop></function></tool_call> x",
        "<tool_call>\n<function=stop>\n</function>", "<tool_call>\n<function=a b>\n</function>",
        "<tool_call>\n<functio=stop>",
        "<tool_call>\n<function=f>\n<parameter=x>\n1\n</function>"}) {
    out.push_back({&Qwen3Coder(), text});
  }
  for (const char* text :
       {"<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>",
        " to=functions.stop<|channel|>commentary json<|message|>{}",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.stop"
        "<|channel|>commentary<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>"
        "Done."
        "<|return|>",
        "<|channel|>commentary to=functions.stop<|message|>{\"a\"}<|call|>",
        "<|channel|>commentary to=python<|message|>print(1)<|call|>", "<|channel|>final",
        "<|channel|>final<|message|>", "No channels.", "to=functions.stop<|message|>"}) {
    out.push_back({&Harmony(), text});
  }
  return out;
}

}  // namespace tandem::tool_calls

#endif  // TANDEM_TESTS_COMMON_TOOL_CALLS_ANSWERS_H_
