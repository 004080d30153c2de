#include "tools/tandem/dataset/chat_messages.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"

namespace tandem::dataset {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const char* Name(const ordered_json& value) {
  if (value.is_null()) return "null";
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return value.type_name();
}

absl::Status Error(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
}

bool IsImagePart(const ordered_json& part) {
  if (!part.is_object() || !part.contains("type")) return false;
  return part["type"] == "image" || part["type"] == "image_url";
}

absl::StatusOr<std::string> JoinParts(const ordered_json& parts, const std::string& field) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ordered_json& part = parts[i];
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string() &&
                         (!part.contains("type") || part["type"] == "text");
    if (!is_text) {
      return Error(absl::StrCat(field, "[", i, "]"),
                   R"(expected a text part {"type": "text", "text": ...})");
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

// Joins the parts unless images stand among them; then checks that the others are texts.
absl::Status JoinOrKeepParts(ordered_json& content, const std::string& field, ImageParts images) {
  ordered_json texts = ordered_json::array();
  for (const ordered_json& part : content) {
    // In place of an image, so that the places of errors stay.
    texts.push_back(images == ImageParts::kKept && IsImagePart(part)
                        ? ordered_json{{"type", "text"}, {"text", ""}}
                        : part);
  }
  ASSIGN_OR_RETURN(std::string text, JoinParts(texts, field));
  const bool keeps =
      images == ImageParts::kKept && std::any_of(content.begin(), content.end(), IsImagePart);
  if (!keeps) content = std::move(text);
  return absl::OkStatus();
}

// Templates write arguments as JSON themselves.
void ParseArguments(ordered_json& calls) {
  for (ordered_json& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    ordered_json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    auto parsed = io::ParseOrderedJson(function["arguments"].get<std::string>());
    if (parsed.ok() && parsed->is_object()) function["arguments"] = *std::move(parsed);
  }
}

void DropNulls(ordered_json& value) {
  if (value.is_object()) {
    for (auto it = value.begin(); it != value.end();) {
      it = it->is_null() ? value.erase(it) : std::next(it);
    }
  }
  if (!value.is_structured()) return;
  for (ordered_json& inner : value) DropNulls(inner);
}

absl::StatusOr<ordered_json> ReadMessage(const ordered_json& given, const std::string& field,
                                         ImageParts images) {
  if (!given.is_object()) {
    return Error(field,
                 absl::StrCat("expected a message {\"role\", \"content\"}, found ", Name(given)));
  }
  ordered_json message = given;
  const bool has_content = given.contains("content");
  DropNulls(message);
  if (!message.contains("role") || !message["role"].is_string()) {
    return Error(field + ".role", "expected a role: system, user, assistant or tool");
  }
  bool has_calls = false;
  if (const auto calls = message.find("tool_calls"); calls != message.end()) {
    if (!calls->is_array()) {
      return Error(field + ".tool_calls", absl::StrCat("expected a list, found ", Name(*calls)));
    }
    has_calls = !calls->empty();
    ParseArguments(*calls);
    if (!has_calls) message.erase(calls);
  }
  const auto content = message.find("content");
  if (content == message.end()) {
    if (!has_calls) {
      return Error(field + ".content",
                   absl::StrCat("expected text, found ", has_content ? "null" : "nothing"));
    }
    message["content"] = "";  // a turn of calls alone: templates add text to what they write
    return message;
  }
  if (content->is_array()) {
    RETURN_IF_ERROR(JoinOrKeepParts(*content, field + ".content", images));
  }
  if (!content->is_string() && !content->is_array()) {
    return Error(field + ".content", absl::StrCat("expected text, found ", Name(*content)));
  }
  return message;
}

// Tables without nested columns keep JSON as text.
absl::StatusOr<ordered_json> ReadJsonOrText(const ordered_json& value, absl::string_view key) {
  if (!value.is_string()) return value;
  const std::string text = value.get<std::string>();
  if (text.empty()) return ordered_json();
  absl::StatusOr<ordered_json> parsed = io::ParseOrderedJson(text);
  if (!parsed.ok()) return Error(key, absl::StrCat("is no JSON: ", parsed.status().message()));
  return parsed;
}

}  // namespace

bool IsMessageList(const json& value) {
  return value.is_array() && !value.empty() && value[0].is_object();
}

absl::StatusOr<ordered_json> ReadMessages(const ordered_json& list, absl::string_view key,
                                          ImageParts images) {
  if (!list.is_array() || list.empty()) {
    return Error(key, absl::StrCat("expected a list of messages, found ",
                                   list.is_array() ? "an empty one" : Name(list)));
  }
  ordered_json messages = ordered_json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(ordered_json message,
                     ReadMessage(list[i], absl::StrCat(key, "[", i, "]"), images));
    messages.push_back(std::move(message));
  }
  return messages;
}

absl::StatusOr<ordered_json> ReadTools(const ordered_json& value, absl::string_view key) {
  ASSIGN_OR_RETURN(ordered_json tools, ReadJsonOrText(value, key));
  if (tools.is_null() || (tools.is_array() && tools.empty())) return ordered_json();
  if (!tools.is_array()) {
    return Error(key, absl::StrCat("expected a list of tools, found ", Name(tools)));
  }
  DropNulls(tools);
  return tools;
}

absl::StatusOr<ordered_json> ReadTemplateVariables(const ordered_json& value,
                                                   absl::string_view key) {
  ASSIGN_OR_RETURN(ordered_json variables, ReadJsonOrText(value, key));
  if (variables.is_null() || variables.is_object()) return variables;
  return Error(key, absl::StrCat("expected an object, found ", Name(variables)));
}

}  // namespace tandem::dataset
