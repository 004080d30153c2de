#include "services/rollout/openai/chat_messages.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/json_text.h"
#include "common/io/ordered_json.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/openai/request_fields.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

absl::Status ConvertArguments(ordered_json& arguments, ArgumentsAs form, const std::string& field) {
  if (arguments.is_null() || arguments == "") arguments = ordered_json::object();
  ordered_json object = arguments;
  if (arguments.is_string()) {
    absl::StatusOr<ordered_json> parsed =
        io::ParseOrderedJson(arguments.get_ref<const std::string&>());
    if (!parsed.ok()) return rpc::InvalidField(field, parsed.status().message());
    object = *std::move(parsed);
  }
  if (!object.is_object()) {
    return rpc::InvalidField(field,
                             "expected a JSON object, or its text, found " + DescribeValue(object));
  }
  if (form == ArgumentsAs::kObject) {
    arguments = std::move(object);
  } else if (!arguments.is_string()) {
    arguments = io::JsonText(arguments);
  }
  return absl::OkStatus();
}

absl::Status ConvertToolCalls(ordered_json& calls, ArgumentsAs form, const std::string& field) {
  if (!calls.is_array()) {
    return rpc::InvalidField(field, "expected a list of calls, found " + DescribeValue(calls));
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string place = absl::StrCat(field, "[", i, "]");
    ordered_json& call = calls[i];
    const bool is_call = call.is_object() && call.contains("function") &&
                         call["function"].is_object() && call["function"].contains("name") &&
                         call["function"]["name"].is_string();
    if (!is_call) {
      return rpc::InvalidField(place, R"(expected {"id", "type": "function", "function": )"
                                      R"({"name", "arguments"}}, found )" +
                                          DescribeValue(call));
    }
    RETURN_IF_ERROR(
        ConvertArguments(call["function"]["arguments"], form, place + ".function.arguments"));
  }
  return absl::OkStatus();
}

bool IsImage(const ordered_json& part) {
  if (!part.is_object()) return false;
  const ordered_json type = part.value("type", ordered_json());
  return type == "image_url" || type == "image";
}

absl::Status ConvertContent(ordered_json& content, ImageParts image_parts,
                            const std::string& field) {
  if (content.is_string() || content.is_null()) return absl::OkStatus();
  if (!content.is_array()) {
    return rpc::InvalidField(
        field,
        absl::StrCat("expected a string or a list of text parts, found ", DescribeValue(content)));
  }
  std::string text;
  ordered_json parts = ordered_json::array();
  bool has_images = false;
  for (const ordered_json& part : content) {
    if (IsImage(part)) {
      if (image_parts == ImageParts::kRefused) {
        return rpc::InvalidField(field, R"(the model takes no images; expected parts )"
                                        R"({"type": "text", "text": ...} only)");
      }
      has_images = true;
      parts.push_back({{"type", "image"}});
      continue;
    }
    const bool is_text = part.is_object() && part.value("type", ordered_json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      return rpc::InvalidField(field, R"(expected parts {"type": "text", "text": ...} only)");
    }
    text += part["text"].get<std::string>();
    parts.push_back({{"type", "text"}, {"text", part["text"]}});
  }
  content = has_images ? std::move(parts) : ordered_json(text);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TemplateMessages> ConvertMessages(const ordered_json& messages, ArgumentsAs form,
                                                 ImageParts image_parts) {
  TemplateMessages out{.messages = messages};
  for (size_t i = 0; i < out.messages.size(); ++i) {
    const std::string field = absl::StrCat("messages[", i, "]");
    ordered_json& message = out.messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return rpc::InvalidField(field, "expected an object with a role and content");
    }
    if (const auto content = message.find("content"); content != message.end()) {
      RETURN_IF_ERROR(ConvertContent(*content, image_parts, field + ".content"));
    }
    if (const auto id = message.find("tool_call_id");
        id != message.end() && !id->is_string() && !id->is_null()) {
      return rpc::InvalidField(field + ".tool_call_id",
                               "expected a string, found " + DescribeValue(*id));
    }
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    // Templates ask whether the key is there.
    if (calls->is_null() || (calls->is_array() && calls->empty())) {
      message.erase("tool_calls");
      continue;
    }
    out.has_calls = true;
    RETURN_IF_ERROR(ConvertToolCalls(*calls, form, field + ".tool_calls"));
  }
  return out;
}

absl::StatusOr<std::string> RenderMessages(const ordered_json& messages,
                                           const tokenizer::ChatOptions& options,
                                           const tokenizer::Tokenizer& tokenizer,
                                           ImageParts image_parts) {
  ASSIGN_OR_RETURN(TemplateMessages plain,
                   ConvertMessages(messages, ArgumentsAs::kObject, image_parts));
  absl::StatusOr<std::string> text = tokenizer.RenderChat(plain.messages, options);
  if (!text.ok() && plain.has_calls) {
    // DeepSeek's template adds the arguments to a text.
    ASSIGN_OR_RETURN(plain, ConvertMessages(messages, ArgumentsAs::kText, image_parts));
    absl::StatusOr<std::string> other = tokenizer.RenderChat(plain.messages, options);
    if (other.ok()) return other;
  }
  if (!text.ok()) return rpc::InvalidField("messages", text.status().message());
  return text;
}

}  // namespace tandem::rollout::openai
