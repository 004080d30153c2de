#include "tools/tandem/driver/prompt_text.h"

#include "absl/strings/str_cat.h"
#include "common/io/json_text.h"

namespace tandem::driver {
namespace {

using nlohmann::ordered_json;

// The content of a message: text, or a list of parts with the text of those that are text.
std::string TextOfMessage(const ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return io::JsonText(*content);
  std::string text;
  for (const ordered_json& part : *content) {
    if (part.is_object() && part.contains("text") && part["text"].is_string()) {
      absl::StrAppend(&text, text.empty() ? "" : "\n", part["text"].get<std::string>());
    }
  }
  return text;
}

}  // namespace

std::string PromptText(const Prompt& prompt) {
  if (!prompt.chat.has_value()) return prompt.text;
  const ordered_json& messages = prompt.chat->messages;
  if (messages.size() == 1) return TextOfMessage(messages[0]);
  std::string text;
  for (const ordered_json& message : messages) {
    absl::StrAppend(&text, text.empty() ? "" : "\n\n", message.value("role", ""), ":\n",
                    TextOfMessage(message));
  }
  return text;
}

}  // namespace tandem::driver
