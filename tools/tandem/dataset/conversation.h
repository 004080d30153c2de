// Renders a conversation as the model generates it: turn by turn, each after what the model sees
// before it writes.
//
// A turn's context is the chat template over the messages before it, with the header of an
// assistant's message; its text is what the template adds for the message. While a template only
// appends, all turns are one sequence. A template that rewrites earlier turns (Qwen3 removes their
// reasoning) starts a new sequence at each turn that it rewrote, so that every turn is trained on
// after the very text that it follows at generation.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_CONVERSATION_H_
#define TANDEM_TOOLS_TANDEM_DATASET_CONVERSATION_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::dataset {

// A run of text that is either trained on or given.
struct TextRun {
  std::string text;
  bool is_trained = false;
};

// Returns sequences of runs, each given, trained, given, trained ... . `is_trained` says of each
// message whether it is trained on. INVALID_ARGUMENT if no message is, or if the template's text of
// a message does not begin with its context.
absl::StatusOr<std::vector<std::vector<TextRun>>> RenderConversation(
    const nlohmann::ordered_json& messages, const std::vector<bool>& is_trained,
    tokenizer::ChatOptions options, const tokenizer::Tokenizer& tokenizer);

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_CONVERSATION_H_
