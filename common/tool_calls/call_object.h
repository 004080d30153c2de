// A call as a JSON object: {"name": "f", "arguments": {...}}.
#ifndef TANDEM_COMMON_TOOL_CALLS_CALL_OBJECT_H_
#define TANDEM_COMMON_TOOL_CALLS_CALL_OBJECT_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tool_calls/tool_call.h"

namespace tandem::tool_calls {

// Reads "name", "arguments" or "parameters", and "id" if there is one; ignores other keys. The
// arguments keep the model's own spelling, so that numbers do not change; a text that holds an
// object counts as the object, and absent arguments as {}. INVALID_ARGUMENT says what is wrong.
absl::StatusOr<ToolCall> ReadCallObject(absl::string_view text);

// The same for a list of them, of at least one.
absl::StatusOr<std::vector<ToolCall>> ReadCallList(absl::string_view text);

// INVALID_ARGUMENT unless the text is a JSON object.
absl::Status CheckObject(absl::string_view text);

// INVALID_ARGUMENT unless it is 1 to kMaxNameBytes bytes without spaces.
absl::Status CheckName(absl::string_view name);

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_CALL_OBJECT_H_
