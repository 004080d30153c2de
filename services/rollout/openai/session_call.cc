#include "services/rollout/openai/session_call.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/rollout/openai/chat_answer.h"
#include "services/rollout/openai/chat_messages.h"
#include "services/rollout/requests/convert.h"
#include "services/rollout/sessions/message_digests.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

// The message that the client got.
ordered_json AnswerOf(const CompletionRequest& request, const SampleChunk& chunk) {
  if (request.tool_calling.format == nullptr) {
    return {{"role", "assistant"}, {"content", chunk.text}};
  }
  ChatAnswer answer(request.tool_calling);
  answer.Push(chunk);
  return answer.Message();
}

v1::RecordedCall RecordedCallOf(const CompletionPrompt& prompt, double temperature,
                                const SampleChunk& chunk) {
  v1::GenerateResponse response = ToProto(chunk, "", /*processed_logprobs=*/true);
  v1::RecordedCall out;
  out.mutable_prompt_token_ids()->Add(prompt.ids.begin(), prompt.ids.end());
  *out.mutable_token_ids() = std::move(*response.mutable_token_ids());
  *out.mutable_logprobs() = std::move(*response.mutable_logprobs());
  *out.mutable_processed_logprobs() = std::move(*response.mutable_processed_logprobs());
  *out.mutable_version_spans() = std::move(*response.mutable_version_spans());
  out.set_finish_reason(response.finish_reason());
  out.set_temperature(temperature);
  out.set_num_cached_tokens(chunk.num_cached_tokens);
  for (const std::string& digest : prompt.image_digests) out.add_image_digests(digest);
  out.set_routed_experts(std::move(*response.mutable_routed_experts()));
  out.set_prompt_routed_experts(std::move(*response.mutable_prompt_routed_experts()));
  return out;
}

}  // namespace

absl::Status SessionCall::Begin(GenerationRequest& generation) {
  ASSIGN_OR_RETURN(Session::Call call,
                   session_->Begin(static_cast<int64_t>(generation.prompt_ids.size()), generation,
                                   request_.prompts[calls_.size()].images));
  calls_.push_back(std::move(call));
  return absl::OkStatus();
}

void SessionCall::Add(const SampleChunk& chunk) {
  const auto [partial, is_new] = partial_.try_emplace(chunk.index, chunk);
  if (!is_new) Merge(chunk, partial->second);
  if (chunk.finish_reason == FinishReason::kNone) return;
  SampleChunk whole = std::move(partial->second);
  partial_.erase(partial);
  Record(std::move(whole));
}

void SessionCall::Record(SampleChunk chunk) {
  const int32_t n = request_.generation.n;
  const CompletionPrompt& prompt = request_.prompts[chunk.index / n];
  v1::RecordedCall recorded = RecordedCallOf(prompt, request_.generation.filter.temperature, chunk);
  ordered_json answer;
  if (request_.chat()) {
    answer = AnswerOf(request_, chunk);
    recorded.set_text(answer["content"].is_string() ? answer["content"].get<std::string>() : "");
  } else {
    recorded.set_text(chunk.text);
  }
  std::vector<std::string> digests;
  std::optional<PastTurn> turn = TurnOf(chunk, answer, digests);
  calls_[chunk.index / n].Record(chunk.index % n, std::move(recorded), std::move(turn), digests,
                                 prompt.images);
}

std::optional<PastTurn> SessionCall::TurnOf(const SampleChunk& chunk, const ordered_json& answer,
                                            std::vector<std::string>& digests) const {
  const CompletionPrompt& prompt = request_.prompts[chunk.index / request_.generation.n];
  const bool may_be_repeated = request_.chat() ? !request_.messages.is_null() : prompt.is_text;
  if (tokenizer_ == nullptr || chunk.token_ids.empty() || !may_be_repeated) return std::nullopt;
  PastTurn turn{.token_ids = prompt.ids,
                .text = prompt.text,
                .end_token = "",
                .num_images = prompt.images.size()};
  turn.token_ids.insert(turn.token_ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
  if (!request_.chat()) {
    const auto text = tokenizer_->Decode(chunk.token_ids, /*skip_special_tokens=*/false);
    if (!text.ok()) return std::nullopt;
    turn.text += *text;
    return turn;
  }
  const int32_t last = chunk.token_ids.back();
  if (chunk.finish_reason == FinishReason::kStop && tokenizer_->IsSpecial(last)) {
    turn.end_token = tokenizer_->Decode({last}, /*skip_special_tokens=*/false).value_or("");
  }
  ordered_json messages = request_.messages;
  messages.push_back(answer);
  const absl::StatusOr<TemplateMessages> plain =
      ConvertMessages(messages, ArgumentsAs::kObject,
                      prompt.images.empty() ? ImageParts::kRefused : ImageParts::kAllowed);
  // A call whose arguments no client can send back.
  if (!plain.ok()) return std::nullopt;
  digests = MessageDigests(plain->messages, prompt.image_digests);
  return turn;
}

}  // namespace tandem::rollout::openai
