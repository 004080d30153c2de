// A parsed request for tokens: to /v1/completions or /v1/chat/completions, and what
// /inference/v1/generate (generate_request.h) shares with them.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_REQUEST_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_REQUEST_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/openai/chat_images.h"
#include "services/rollout/openai/request_fields.h"
#include "services/rollout/openai/tool_calling.h"
#include "services/rollout/requests/text_limits.h"
#include "services/rollout/sessions/session.h"

namespace tandem::rollout::openai {

struct CompletionPrompt {
  std::vector<int32_t> ids;
  std::string text;                        // for `echo`; of a chat what the template rendered
  bool is_text = false;                    // the client sent text
  std::vector<ImageFile> images;           // one for each run of placeholders in ids
  std::vector<std::string> image_digests;  // of a session's; of images
};

enum class Route { kCompletion, kChat, kGenerate };

struct CompletionRequest {
  Route route = Route::kCompletion;
  std::string model;                      // the client's name for it; empty: any
  std::vector<CompletionPrompt> prompts;  // at least one; exactly one but for completions
  GenerationRequest generation;           // per prompt; without prompt_ids
  bool generates = true;                  // false with echo and max_tokens 0
  bool echo = false;                      // the response starts with the prompt
  bool stream = false;
  bool include_usage = false;  // at the end of a stream
  // Number of top log-probs per token; unset: no log-probs.
  std::optional<int32_t> num_logprobs;
  bool return_token_ids = false;            // ids and version spans beside the text
  bool return_tokens_as_token_ids = false;  // "token_id:17" in log-probs
  bool processed_logprobs = false;          // not the raw ones
  ToolCalling tool_calling;                 // chats only
  nlohmann::ordered_json messages;          // of chats in a session that a message may extend

  bool chat() const { return route == Route::kChat; }
};

// What the server knows, and how much it may do for one request.
struct ParseOptions {
  TextLimits text;
  // Called now and then while prompts are tokenized; an error ends the work. Null: no check.
  std::function<absl::Status()> check = nullptr;
  const tool_calls::Format* tool_call_format = nullptr;  // the model's; null: calls stay text
  bool processed_logprobs = false;
  ImageReading images;  // of chats
  // Prompts that repeat one of its turns keep that turn's tokens. Null: no session.
  const Session* session = nullptr;
};

// Reads OpenAI's fields, and those of vLLM's that the engine supports. INVALID_ARGUMENT with a
// BadField for a field that is malformed, unknown, or asks for an unsupported change of the result.
// The engine checks ranges. `tokenizer` may be null: then prompts must be token ids. CONTEXT_TOO_LONG
// for a prompt that exceeds the limits, or if only the answer repeats it; CheckAnswerBytes() bounds
// what is repeated.
absl::StatusOr<CompletionRequest> ParseCompletionRequest(const nlohmann::ordered_json& body,
                                                         bool chat,
                                                         const tokenizer::Tokenizer* tokenizer,
                                                         const ParseOptions& options = {});

// Parts that other requests of tokens share.
// Reads `stream` and `stream_options`.
absl::Status ReadStreaming(RequestFields& fields, CompletionRequest& request);
// INVALID_ARGUMENT unless n, times the prompts, is within limits.
absl::Status CheckNumChoices(const CompletionRequest& request, size_t num_prompts);
// Asks the engine for the log-probs that the request wants.
void FinishLogprobs(const ParseOptions& options, CompletionRequest& request);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_REQUEST_H_
