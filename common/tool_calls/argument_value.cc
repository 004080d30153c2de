#include "common/tool_calls/argument_value.h"

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/ordered_json.h"
#include "common/tool_calls/text_scan.h"

namespace tandem::tool_calls {
namespace {

using nlohmann::ordered_json;

// The "type" of the parameter's schema; null if nothing says it.
const ordered_json* TypeOf(const Schemas& schemas, const std::string& function,
                           const std::string& parameter) {
  const auto schema = schemas.find(function);
  if (schema == schemas.end() || !schema->second.is_object()) return nullptr;
  const ordered_json* at = &schema->second;
  for (const std::string& key : {std::string("properties"), parameter, std::string("type")}) {
    if (!at->is_object()) return nullptr;
    const auto next = at->find(key);
    if (next == at->end()) return nullptr;
    at = &*next;
  }
  return at;
}

bool Allows(const ordered_json& type, const char* name) {
  return type == name ||
         (type.is_array() && std::find(type.begin(), type.end(), name) != type.end());
}

}  // namespace

ordered_json ArgumentValue(absl::string_view text, const Schemas& schemas,
                           const std::string& function, const std::string& parameter) {
  const absl::string_view trimmed = Trim(text);
  const bool is_none = trimmed == "None" || trimmed == "null";
  const ordered_json* type = TypeOf(schemas, function, parameter);
  if (type != nullptr && Allows(*type, "string")) {
    if (is_none && Allows(*type, "null")) return nullptr;
    return std::string(text);
  }
  if (is_none) return nullptr;
  if (trimmed == "True") return true;
  if (trimmed == "False") return false;
  absl::StatusOr<ordered_json> value = io::ParseOrderedJson(trimmed);
  if (value.ok()) return *std::move(value);
  return std::string(text);
}

}  // namespace tandem::tool_calls
