// The type of an argument that a model writes as plain text, as between tags of XML.
#ifndef TANDEM_COMMON_TOOL_CALLS_ARGUMENT_VALUE_H_
#define TANDEM_COMMON_TOOL_CALLS_ARGUMENT_VALUE_H_

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "common/tool_calls/tool_call.h"

namespace tandem::tool_calls {

// A parameter whose schema says string takes the text as it is. Any other one is read as JSON, with
// Python's True, False and None, if the text is such, else as a string.
nlohmann::ordered_json ArgumentValue(absl::string_view text, const Schemas& schemas,
                                     const std::string& function, const std::string& parameter);

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_ARGUMENT_VALUE_H_
