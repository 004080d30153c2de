#include "common/tool_calls/call_object.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"
#include "common/tool_calls/text_scan.h"

namespace tandem::tool_calls {
namespace {

using nlohmann::ordered_json;

// The end of the JSON value at `begin`, in valid JSON.
size_t ValueEnd(absl::string_view text, size_t begin) {
  if (text[begin] == '{' || text[begin] == '[') {
    JsonSpan span;
    span.Scan(text.substr(begin));
    return begin + span.size();
  }
  size_t at = begin;
  if (text[at] == '"') {
    for (++at; text[at] != '"'; ++at) {
      if (text[at] == '\\') ++at;
    }
    return at + 1;
  }
  while (at < text.size() && !IsSpace(text[at]) && text[at] != ',' && text[at] != '}' &&
         text[at] != ']') {
    ++at;
  }
  return at;
}

// The text of the last value of `key` in an object that is valid JSON.
std::optional<absl::string_view> ValueText(absl::string_view object, absl::string_view key) {
  std::optional<absl::string_view> out;
  size_t at = object.find('{') + 1;
  const auto skip = [&](absl::string_view characters) {
    while (at < object.size() &&
           (IsSpace(object[at]) || characters.find(object[at]) != absl::string_view::npos)) {
      ++at;
    }
  };
  for (skip(","); at < object.size() && object[at] == '"'; skip(",")) {
    const size_t name_end = ValueEnd(object, at);
    const ordered_json name = ordered_json::parse(object.begin() + at, object.begin() + name_end,
                                                  nullptr, /*allow_exceptions=*/false);
    at = name_end;
    skip(":");
    const size_t end = ValueEnd(object, at);
    if (name.is_string() && name.get_ref<const std::string&>() == key) {
      out = object.substr(at, end - at);
    }
    at = end;
  }
  return out;
}

absl::StatusOr<std::string> ReadArguments(const ordered_json& call, absl::string_view text) {
  const char* key = call.contains("arguments") ? "arguments" : "parameters";
  const auto found = call.find(key);
  if (found == call.end() || found->is_null()) return "{}";
  if (found->is_object()) return std::string(ValueText(text, key).value_or("{}"));
  if (found->is_string()) {
    const std::string& inner = found->get_ref<const std::string&>();
    RETURN_IF_ERROR(CheckObject(inner)) << "\"" << key << "\"";
    return inner;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected \"", key, "\" to be an object, found ", found->type_name()));
}

}  // namespace

absl::Status CheckObject(absl::string_view text) {
  ASSIGN_OR_RETURN(const ordered_json value, io::ParseOrderedJson(text));
  if (value.is_object()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected a JSON object, found ", value.type_name()));
}

absl::Status CheckName(absl::string_view name) {
  if (!name.empty() && name.size() <= kMaxNameBytes &&
      std::none_of(name.begin(), name.end(), IsSpace)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("expected a function's name of 1 to ",
                                                 kMaxNameBytes, " bytes without spaces, found ",
                                                 name.empty() ? "none" : "another text"));
}

absl::StatusOr<ToolCall> ReadCallObject(absl::string_view text) {
  ASSIGN_OR_RETURN(const ordered_json call, io::ParseOrderedJson(text));
  if (!call.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a call as an object, found ", call.type_name()));
  }
  const auto name = call.find("name");
  if (name == call.end() || !name->is_string()) {
    return absl::InvalidArgumentError("expected the function's \"name\", a string");
  }
  ToolCall out;
  out.name = name->get<std::string>();
  RETURN_IF_ERROR(CheckName(out.name));
  ASSIGN_OR_RETURN(out.arguments, ReadArguments(call, text));
  const auto id = call.find("id");
  if (id != call.end() && id->is_string()) out.id = id->get<std::string>();
  return out;
}

absl::StatusOr<std::vector<ToolCall>> ReadCallList(absl::string_view text) {
  ASSIGN_OR_RETURN(const ordered_json list, io::ParseOrderedJson(text));
  if (!list.is_array() || list.empty()) {
    return absl::InvalidArgumentError("expected a list of calls");
  }
  std::vector<ToolCall> out;
  size_t at = text.find('[') + 1;
  for (size_t i = 0; i < list.size(); ++i) {
    while (IsSpace(text[at]) || text[at] == ',') ++at;
    const size_t end = ValueEnd(text, at);
    ASSIGN_OR_RETURN(ToolCall call, ReadCallObject(text.substr(at, end - at)));
    out.push_back(std::move(call));
    at = end;
  }
  return out;
}

}  // namespace tandem::tool_calls
