// What a model answers: parsed by a format, complete and in pieces, with the same result.
//
// The first byte chooses the format, the second the size of the pieces; the rest is the answer.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "common/io/parse_json.h"
#include "common/tool_calls/registry.h"
#include "common/tool_calls/stream_parser.h"

namespace {

namespace tool_calls = tandem::tool_calls;

void Require(bool holds) {
  if (!holds) std::abort();
}

tool_calls::ParserOptions Options() {
  using Json = nlohmann::ordered_json;
  static const auto& schemas = *new tool_calls::Schemas{
      {"f", Json::parse(R"({"properties": {"s": {"type": "string"}, "n": {"type": "number"}}})")}};
  return {.schemas = schemas, .new_id = [] { return "id"; }};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto& formats = tool_calls::Formats();
  const tool_calls::Format& format = *formats[data[0] % formats.size()];
  const size_t piece = 1 + data[1];
  const std::string text(reinterpret_cast<const char*>(data + 2), size - 2);

  const tool_calls::Answer complete = tool_calls::ParseAnswer(format, text, {}, Options());

  tool_calls::StreamParser parser(format, Options());
  tool_calls::Answer streamed;
  for (size_t at = 0; at < text.size(); at += piece) {
    tool_calls::AddDeltas(parser.Push(text.substr(at, piece)), streamed);
  }
  tool_calls::AddDeltas(parser.Finish(), streamed);
  streamed.problems = parser.problems();
  Require(streamed == complete);

  size_t bytes = complete.content.size() + complete.reasoning.size();
  for (const tool_calls::ToolCall& call : complete.calls) {
    Require(!call.name.empty());
    const auto arguments = tandem::io::ParseJson<nlohmann::json>(call.arguments);
    Require(arguments.ok() && arguments->is_object());
    bytes += call.name.size();
  }
  Require(bytes <= text.size());
  for (const tool_calls::Problem& problem : complete.problems) {
    Require(!problem.what.empty() && problem.offset >= 0 &&
            static_cast<size_t>(problem.offset) <= text.size());
  }
  return 0;
}
