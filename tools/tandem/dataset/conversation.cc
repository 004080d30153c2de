#include "tools/tandem/dataset/conversation.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::dataset {

using nlohmann::ordered_json;

absl::StatusOr<std::vector<std::vector<TextRun>>> RenderConversation(
    const ordered_json& messages, const std::vector<bool>& is_trained,
    tokenizer::ChatOptions options, const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::vector<TextRun>> sequences;
  std::string so_far;  // text of the last sequence
  ordered_json seen = ordered_json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_trained[i]) {
      seen.push_back(messages[i]);
      continue;
    }
    options.add_generation_prompt = true;
    ASSIGN_OR_RETURN(const std::string context, tokenizer.RenderChat(seen, options));
    seen.push_back(messages[i]);
    options.add_generation_prompt = false;
    ASSIGN_OR_RETURN(std::string text, tokenizer.RenderChat(seen, options));
    if (!absl::StartsWith(text, context)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message ", i,
          ": the chat template writes it after another text than it gives the model to continue; "
          "use a template whose generation prompt is the beginning of an assistant's message, or "
          "set data.chat_template_kwargs"));
    }
    if (sequences.empty() || !absl::StartsWith(context, so_far)) {
      sequences.emplace_back().push_back({context, false});
    } else {
      sequences.back().push_back({context.substr(so_far.size()), false});
    }
    sequences.back().push_back({text.substr(context.size()), true});
    so_far = std::move(text);
  }
  if (sequences.empty()) {
    return absl::InvalidArgumentError(
        "expected an assistant's message to train on, found none (data.trained_turns, and the "
        "messages' own weight)");
  }
  return sequences;
}

}  // namespace tandem::dataset
