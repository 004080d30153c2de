// The fields of a chat that are about calls of functions: tools, tool_choice, parallel_tool_calls.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_TOOL_CALLING_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_TOOL_CALLING_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tool_calls/format.h"
#include "services/rollout/openai/request_fields.h"

namespace tandem::rollout::openai {

// How calls are read from the answers.
struct ToolCalling {
  const tool_calls::Format* format = nullptr;  // null: calls stay text
  tool_calls::Schemas schemas;
  int max_calls = tool_calls::kMaxCalls;
  // Ends the prompt and begins every answer, so that the model has to call.
  std::string forced_text;
};

// Sets `tools` to what the chat template is given: null without tools. `format` is the model's, null
// if it has none. INVALID_ARGUMENT with a BadField, also for a call that cannot be forced.
absl::StatusOr<ToolCalling> ReadToolCalling(RequestFields& fields, const tool_calls::Format* format,
                                            nlohmann::ordered_json& tools);

// The format that `parser` names: "auto" detects it by the chat template of `tokenizer`, which may be
// null, and "none" is null. INVALID_ARGUMENT with the names there are.
absl::StatusOr<const tool_calls::Format*> ChooseFormat(absl::string_view parser,
                                                       const tokenizer::Tokenizer* tokenizer);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_TOOL_CALLING_H_
