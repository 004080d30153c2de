// Prompts that repeat what an earlier call of their session was given and returned: the tokens of that
// call stay, and only what is new is rendered and tokenized.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_SESSION_PROMPT_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_SESSION_PROMPT_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/sessions/session.h"

namespace tandem::rollout::openai {

struct ContinuedChat {
  std::shared_ptr<const PastTurn> past;
  std::string new_text;    // follows past->token_ids
  std::string whole_text;  // of all messages, as the template writes them
};

// `image_digests`: those of the messages' images, in order. Returns nullopt if the messages repeat no
// turn of the session, or if the template writes the turn otherwise than it was: then the chat begins a
// sequence of its own. INVALID_ARGUMENT with a BadField for messages that are malformed.
absl::StatusOr<std::optional<ContinuedChat>> ContinueChat(
    const Session& session, const nlohmann::ordered_json& messages,
    const std::vector<std::string>& image_digests, const tokenizer::ChatOptions& options,
    const tokenizer::Tokenizer& tokenizer);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_SESSION_PROMPT_H_
