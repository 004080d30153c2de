// What a request for completions asks for, of either kind: /v1/completions or /v1/chat/completions.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_REQUEST_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_REQUEST_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/generation.h"

namespace tandem::rollout::openai {

struct CompletionPrompt {
  std::vector<int32_t> ids;
  std::string text;  // as `echo` repeats it
};

struct CompletionRequest {
  bool chat = false;
  std::string model;                      // as the client names it; empty: whatever is here
  std::vector<CompletionPrompt> prompts;  // at least one; of a chat exactly one
  GenerationRequest generation;           // of each prompt; its ids are left out
  bool generates = true;                  // false with echo and max_tokens 0
  bool echo = false;                      // answers begin with the prompt
  bool stream = false;
  bool include_usage = false;  // of a stream, at its end
  // How many of the likeliest tokens come beside each token's log-prob; none at all where unset.
  std::optional<int32_t> num_logprobs;
  bool return_token_ids = false;            // ids and version spans beside the text
  bool return_tokens_as_token_ids = false;  // "token_id:17" in log-probs
};

// Reads OpenAI's fields, and of vLLM's those that the engine has. INVALID_ARGUMENT with a BadField
// for a field that is malformed, unknown, or would change the result in a way that is not offered.
// Ranges are the engine's to check. `tokenizer` may be null: then a prompt is token ids.
absl::StatusOr<CompletionRequest> ParseCompletionRequest(const nlohmann::ordered_json& body,
                                                         bool chat,
                                                         const tokenizer::Tokenizer* tokenizer);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_REQUEST_H_
