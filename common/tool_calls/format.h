// Format: how a family of models writes calls. Each has a file of its own here; registry.cc lists
// them.
#ifndef TANDEM_COMMON_TOOL_CALLS_FORMAT_H_
#define TANDEM_COMMON_TOOL_CALLS_FORMAT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tool_calls/scanner.h"
#include "common/tool_calls/tool_call.h"

namespace tandem::tool_calls {

struct Format {
  std::string name;
  // A chat template with every text of one of these lists is of this format.
  std::vector<std::vector<std::string>> template_texts;
  std::unique_ptr<Scanner> (*make_scanner)(const Schemas& schemas) = nullptr;
  // The text with which a call of `function`, or with an empty name of any function, begins: put in
  // front of an answer, it forces a call. Null: the format has none that suits all its models.
  std::string (*forced_text)(absl::string_view function) = nullptr;
  bool short_ids = false;  // the chat template wants ids of nine letters and digits
};

const Format& DeepSeek();
const Format& Glm45();
const Format& Harmony();
const Format& Hermes();
const Format& Llama3();
const Format& Mistral();
const Format& Qwen3Coder();

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_FORMAT_H_
