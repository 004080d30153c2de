// Finds the tool calls of a completion in the form of Hermes and Qwen:
//   <tool_call>
//   {"name": "calculator", "arguments": {"expression": "48/2"}}
//   </tool_call>
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_HERMES_TOOL_CALLS_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_HERMES_TOOL_CALLS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::environment {

inline constexpr absl::string_view kToolCallBegin = "<tool_call>";
inline constexpr absl::string_view kToolCallEnd = "</tool_call>";

struct ToolCall {
  std::string name;
  nlohmann::ordered_json arguments;  // an object
};

struct ToolCalls {
  std::vector<ToolCall> calls;  // in order
  // For each malformed call, what was wrong with it, as a sentence for the model.
  std::vector<std::string> problems;
  bool is_open = false;  // the last call is not closed; it is in neither list
};

// Arguments may be an object or its JSON as text, as OpenAI writes them.
ToolCalls ParseHermesToolCalls(absl::string_view text);

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_HERMES_TOOL_CALLS_H_
