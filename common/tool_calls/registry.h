// The formats of calls, by name and by chat template.
//
//   const Format* format = DetectFormat(chat_template);
//   if (format != nullptr) {
//     ASSIGN_OR_RETURN(format, FindFormat("hermes"));
//   }
#ifndef TANDEM_COMMON_TOOL_CALLS_REGISTRY_H_
#define TANDEM_COMMON_TOOL_CALLS_REGISTRY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tool_calls/format.h"

namespace tandem::tool_calls {

// In the order in which templates are tried.
const std::vector<const Format*>& Formats();

// INVALID_ARGUMENT with the names there are.
absl::StatusOr<const Format*> FindFormat(absl::string_view name);

// The format of a model with this chat template; null if none is known.
const Format* DetectFormat(absl::string_view chat_template);

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_REGISTRY_H_
