#include "common/tool_calls/registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::tool_calls {

// A format whose template texts another one's include comes first.
const std::vector<const Format*>& Formats() {
  static const auto& formats = *new std::vector<const Format*>{
      &Glm45(), &Qwen3Coder(), &Hermes(), &DeepSeek(), &Harmony(), &Mistral(), &Llama3(),
  };
  return formats;
}

absl::StatusOr<const Format*> FindFormat(absl::string_view name) {
  std::string names;
  for (const Format* format : Formats()) {
    if (format->name == name) return format;
    absl::StrAppend(&names, names.empty() ? "" : ", ", format->name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected one of ", names, ", found \"", name.substr(0, 100), "\""));
}

const Format* DetectFormat(absl::string_view chat_template) {
  const auto has = [&](const std::string& text) {
    return chat_template.find(text) != absl::string_view::npos;
  };
  for (const Format* format : Formats()) {
    for (const std::vector<std::string>& texts : format->template_texts) {
      if (std::all_of(texts.begin(), texts.end(), has)) return format;
    }
  }
  return nullptr;
}

}  // namespace tandem::tool_calls
