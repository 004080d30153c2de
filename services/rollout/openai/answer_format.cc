#include "services/rollout/openai/answer_format.h"

namespace tandem::rollout::openai {

using nlohmann::ordered_json;

ordered_json NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAborted:
      return "abort";  // as vLLM says it
    case FinishReason::kNone:
      break;
  }
  return nullptr;
}

AnswerFormat::AnswerFormat(const CompletionRequest& request, int64_t policy_version,
                           int64_t incarnation)
    : request_(request), policy_version_(policy_version), incarnation_(incarnation) {
  for (const CompletionPrompt& prompt : request.prompts) {
    num_prompt_tokens_ += static_cast<int64_t>(prompt.ids.size());
  }
}

void AnswerFormat::Count(const SampleChunk& chunk) {
  num_completion_tokens_ += static_cast<int64_t>(chunk.token_ids.size());
  // A prompt is computed once for all its samples.
  if (chunk.first && chunk.index % request_.generation.n == 0) {
    num_cached_tokens_ += chunk.num_cached_tokens;
  }
  if (!chunk.version_spans.empty()) {
    policy_version_ = chunk.version_spans.back().policy_version;
    incarnation_ = chunk.version_spans.back().incarnation;
  }
}

ordered_json AnswerFormat::Usage() const {
  return {{"prompt_tokens", num_prompt_tokens_},
          {"completion_tokens", num_completion_tokens_},
          {"total_tokens", num_prompt_tokens_ + num_completion_tokens_},
          {"prompt_tokens_details", {{"cached_tokens", num_cached_tokens_}}}};
}

}  // namespace tandem::rollout::openai
