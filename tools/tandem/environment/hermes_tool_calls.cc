#include "tools/tandem/environment/hermes_tool_calls.h"

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"

namespace tandem::environment {
namespace {

using nlohmann::ordered_json;

absl::StatusOr<ToolCall> ParseCall(absl::string_view text) {
  constexpr absl::string_view kForm =
      R"(expected {"name": "...", "arguments": {...}} between <tool_call> and </tool_call>)";
  // Parses without deep recursion and refuses duplicate keys.
  absl::StatusOr<ordered_json> call = io::ParseOrderedJson(text);
  if (!call.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(kForm, ", found ", call.status().message()));
  }
  if (!call->is_object() || !call->contains("name") || !(*call)["name"].is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(kForm, ", found no name"));
  }
  ToolCall out{.name = (*call)["name"].get<std::string>(), .arguments = ordered_json::object()};
  if (!call->contains("arguments")) return out;
  ordered_json& arguments = (*call)["arguments"];
  if (arguments.is_string()) {
    const std::string as_text = arguments.get<std::string>();
    absl::StatusOr<ordered_json> parsed = io::ParseOrderedJson(as_text);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("arguments of ", out.name, ": ", parsed.status().message()));
    }
    arguments = *std::move(parsed);
  }
  if (!arguments.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "arguments of ", out.name, ": expected an object, found ", arguments.type_name()));
  }
  out.arguments = std::move(arguments);
  return out;
}

}  // namespace

ToolCalls ParseHermesToolCalls(absl::string_view text) {
  ToolCalls out;
  while (true) {
    const size_t begin = text.find(kToolCallBegin);
    if (begin == absl::string_view::npos) return out;
    text.remove_prefix(begin + kToolCallBegin.size());
    const size_t end = text.find(kToolCallEnd);
    if (end == absl::string_view::npos) {
      out.is_open = true;
      return out;
    }
    absl::StatusOr<ToolCall> call = ParseCall(text.substr(0, end));
    if (call.ok()) {
      out.calls.push_back(*std::move(call));
    } else {
      out.problems.push_back(absl::StrCat("malformed tool call: ", call.status().message()));
    }
    text.remove_prefix(end + kToolCallEnd.size());
  }
}

}  // namespace tandem::environment
