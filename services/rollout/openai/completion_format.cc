#include "services/rollout/openai/completion_format.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/new_uuid.h"
#include "services/rollout/openai/token_text.h"

namespace tandem::rollout::openai {
namespace {

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

// The text's bytes; null where it only stands for a part of a character.
ordered_json Bytes(const std::string& text, const tokenizer::Tokenizer* tokenizer, int32_t id) {
  if (tokenizer == nullptr) return nullptr;
  const auto decoded = tokenizer->Decode({id}, /*skip_special_tokens=*/false);
  if (!decoded.ok() || decoded->empty() || !absl::EndsWith(text, *decoded)) return nullptr;
  ordered_json bytes = ordered_json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

}  // namespace

CompletionFormat::CompletionFormat(const CompletionRequest& request,
                                   const tokenizer::Tokenizer* tokenizer, std::string model,
                                   std::vector<ScoreResult> scores, int64_t policy_version,
                                   int64_t incarnation)
    : request_(request),
      tokenizer_(tokenizer),
      model_(std::move(model)),
      scores_(std::move(scores)),
      id_(absl::StrCat(request.chat ? "chatcmpl-" : "cmpl-", rpc::NewUuid())),
      created_(absl::ToUnixSeconds(absl::Now())),
      policy_version_(policy_version),
      incarnation_(incarnation) {
  for (const CompletionPrompt& prompt : request.prompts) {
    num_prompt_tokens_ += static_cast<int64_t>(prompt.ids.size());
  }
}

std::string CompletionFormat::Name(int32_t id) const {
  return TokenText(request_.return_tokens_as_token_ids ? nullptr : tokenizer_, id);
}

void CompletionFormat::Count(const SampleChunk& chunk) {
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

ordered_json CompletionFormat::Head(const char* object) const {
  ordered_json out;
  out["id"] = id_;
  out["object"] = object;
  out["created"] = created_;
  out["model"] = model_;
  out["system_fingerprint"] = absl::StrCat("policy_version:", policy_version_);
  out["policy_version"] = policy_version_;
  return out;
}

ordered_json CompletionFormat::Usage() const {
  return {{"prompt_tokens", num_prompt_tokens_},
          {"completion_tokens", num_completion_tokens_},
          {"total_tokens", num_prompt_tokens_ + num_completion_tokens_},
          {"prompt_tokens_details", {{"cached_tokens", num_cached_tokens_}}}};
}

ordered_json CompletionFormat::Whole(const std::vector<SampleChunk>& chunks) {
  ordered_json choices = ordered_json::array();
  for (const SampleChunk& chunk : chunks) {
    Count(chunk);
    choices.push_back(Choice(chunk, /*whole=*/true));
  }
  ordered_json out = Head(request_.chat ? "chat.completion" : "text_completion");
  out["choices"] = std::move(choices);
  out["usage"] = Usage();
  if (request_.chat && request_.return_token_ids) {
    out["prompt_token_ids"] = request_.prompts.front().ids;
  }
  return out;
}

std::optional<ordered_json> CompletionFormat::Event(const SampleChunk& chunk) {
  Count(chunk);
  const bool begun = choices_[chunk.index].begun;
  const bool tells = chunk.finish_reason != FinishReason::kNone || !chunk.text.empty() || !begun ||
                     request_.num_logprobs.has_value() || request_.return_token_ids;
  if (!tells) return std::nullopt;
  ordered_json choice = Choice(chunk, /*whole=*/false);
  ordered_json out = Head(request_.chat ? "chat.completion.chunk" : "text_completion");
  out["choices"] = ordered_json::array({std::move(choice)});
  if (request_.chat && request_.return_token_ids && !begun) {
    out["prompt_token_ids"] = request_.prompts.front().ids;
  }
  if (request_.include_usage) out["usage"] = nullptr;
  return out;
}

ordered_json CompletionFormat::UsageEvent() const {
  ordered_json out = Head(request_.chat ? "chat.completion.chunk" : "text_completion");
  out["choices"] = ordered_json::array();
  out["usage"] = Usage();
  return out;
}

ordered_json CompletionFormat::Choice(const SampleChunk& chunk, bool whole) {
  ChoiceState& state = choices_[chunk.index];
  const bool first = !std::exchange(state.begun, true);
  const bool echoes = first && request_.echo;
  const CompletionPrompt& prompt = request_.prompts[chunk.index / request_.generation.n];
  ordered_json choice;
  choice["index"] = chunk.index;
  if (!request_.chat) {
    choice["text"] = echoes ? prompt.text + chunk.text : chunk.text;
  } else if (whole) {
    choice["message"] = {{"role", "assistant"}, {"content", chunk.text}, {"refusal", nullptr}};
  } else {
    choice["delta"] = first ? ordered_json{{"role", "assistant"}, {"content", chunk.text}}
                            : ordered_json{{"content", chunk.text}};
  }
  choice["logprobs"] = nullptr;
  if (request_.num_logprobs.has_value()) {
    choice["logprobs"] = request_.chat ? ChatLogprobs(chunk) : Logprobs(chunk, echoes, state);
  }
  choice["finish_reason"] = NameOf(chunk.finish_reason);
  if (!request_.return_token_ids) return choice;
  choice["token_ids"] = chunk.token_ids;
  ordered_json spans = ordered_json::array();
  for (const VersionSpan& span : chunk.version_spans) {
    spans.push_back(
        {{"policy_version", span.policy_version}, {"begin", span.begin}, {"end", span.end}});
  }
  choice["version_spans"] = std::move(spans);
  if (!request_.chat && first) choice["prompt_token_ids"] = prompt.ids;
  return choice;
}

ordered_json CompletionFormat::Logprobs(const SampleChunk& chunk, bool echoes, ChoiceState& state) {
  ordered_json tokens = ordered_json::array();
  ordered_json logprobs = ordered_json::array();
  ordered_json top_logprobs = ordered_json::array();
  ordered_json offsets = ordered_json::array();
  if (tokenizer_ != nullptr && !state.decoder.has_value()) {
    state.decoder.emplace(*tokenizer_, /*skip_special_tokens=*/true);
  }
  const auto add = [&](int32_t id, const float* logprob, const std::vector<TokenLogprob>* top) {
    tokens.push_back(Name(id));
    logprobs.push_back(logprob == nullptr ? ordered_json() : ordered_json(*logprob));
    offsets.push_back(state.offset);
    if (state.decoder.has_value()) {
      state.offset += CountCharacters(state.decoder->Push(id).value_or(""));
    }
    if (top == nullptr) {
      top_logprobs.push_back(nullptr);
      return;
    }
    ordered_json likeliest = ordered_json::object();
    for (const TokenLogprob& token : *top) likeliest[Name(token.id)] = token.logprob;
    likeliest[Name(id)] = *logprob;
    top_logprobs.push_back(std::move(likeliest));
  };
  const auto top_of = [](const std::vector<std::vector<TokenLogprob>>& lists, size_t i) {
    return i < lists.size() ? &lists[i] : nullptr;
  };
  const size_t prompt = chunk.index / request_.generation.n;
  if (echoes) {
    const std::vector<int32_t>& ids = request_.prompts[prompt].ids;
    const ScoreResult& score = scores_[prompt];
    add(ids[0], nullptr, nullptr);
    for (size_t i = 1; i < ids.size(); ++i) {
      add(ids[i], &score.logprobs[i - 1], top_of(score.top_logprobs, i - 1));
    }
  }
  for (size_t i = 0; i < chunk.token_ids.size(); ++i) {
    add(chunk.token_ids[i], &chunk.logprobs[i], top_of(chunk.top_logprobs, i));
  }
  ordered_json out;
  out["tokens"] = std::move(tokens);
  out["token_logprobs"] = std::move(logprobs);
  out["top_logprobs"] = *request_.num_logprobs == 0 ? ordered_json() : std::move(top_logprobs);
  out["text_offset"] = std::move(offsets);
  return out;
}

ordered_json CompletionFormat::ChatLogprobs(const SampleChunk& chunk) const {
  const auto entry = [this](int32_t id, float logprob) {
    const std::string name = Name(id);
    return ordered_json{
        {"token", name}, {"logprob", logprob}, {"bytes", Bytes(name, tokenizer_, id)}};
  };
  ordered_json content = ordered_json::array();
  for (size_t i = 0; i < chunk.token_ids.size(); ++i) {
    ordered_json token = entry(chunk.token_ids[i], chunk.logprobs[i]);
    token["top_logprobs"] = ordered_json::array();
    if (i < chunk.top_logprobs.size()) {
      for (const TokenLogprob& top : chunk.top_logprobs[i]) {
        token["top_logprobs"].push_back(entry(top.id, top.logprob));
      }
    }
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace tandem::rollout::openai
