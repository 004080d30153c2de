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
    : AnswerFormat(request, policy_version, incarnation),
      tokenizer_(tokenizer),
      model_(std::move(model)),
      scores_(std::move(scores)),
      id_(absl::StrCat(request.chat() ? "chatcmpl-" : "cmpl-", rpc::NewUuid())),
      created_(absl::ToUnixSeconds(absl::Now())) {}

std::string CompletionFormat::Name(int32_t id) const {
  return TokenText(request_.return_tokens_as_token_ids ? nullptr : tokenizer_, id);
}

ordered_json CompletionFormat::Head(const char* object) const {
  ordered_json out;
  out["id"] = id_;
  out["object"] = object;
  out["created"] = created_;
  out["model"] = model_;
  out["system_fingerprint"] = absl::StrCat("policy_version:", policy_version());
  out["policy_version"] = policy_version();
  return out;
}

CompletionFormat::ChoiceState& CompletionFormat::Add(const SampleChunk& chunk) {
  Count(chunk);
  ChoiceState& state = choices_[chunk.index];
  if (request_.tool_calling.format == nullptr) return state;
  if (!state.answer.has_value()) state.answer.emplace(request_.tool_calling);
  state.answer->Push(chunk);
  return state;
}

std::string CompletionFormat::TextOf(const SampleChunk& chunk, bool first) const {
  if (!first || !request_.echo) return chunk.text;
  return request_.prompts[chunk.index / request_.generation.n].text + chunk.text;
}

ordered_json CompletionFormat::Whole(const std::vector<SampleChunk>& chunks) {
  ordered_json choices = ordered_json::array();
  for (const SampleChunk& chunk : chunks) {
    const ChoiceState& state = Add(chunk);
    if (!request_.chat()) {
      choices.push_back(Choice(chunk, "text", TextOf(chunk, /*first=*/true), /*first=*/true));
      continue;
    }
    ordered_json message =
        state.answer.has_value()
            ? state.answer->Message()
            : ordered_json{{"role", "assistant"}, {"content", chunk.text}, {"refusal", nullptr}};
    choices.push_back(Choice(chunk, "message", std::move(message), /*first=*/true));
  }
  ordered_json out = Head(request_.chat() ? "chat.completion" : "text_completion");
  out["choices"] = std::move(choices);
  out["usage"] = Usage();
  if (request_.chat() && request_.return_token_ids) {
    out["prompt_token_ids"] = request_.prompts.front().ids;
  }
  return out;
}

std::vector<ordered_json> CompletionFormat::Events(const SampleChunk& chunk) {
  ChoiceState& state = Add(chunk);
  if (state.answer.has_value()) return ToolEvents(chunk, state);
  const bool first = !state.begun;
  const bool tells = chunk.finish_reason != FinishReason::kNone || !chunk.text.empty() || first ||
                     request_.num_logprobs.has_value() || request_.return_token_ids;
  if (!tells) return {};
  state.begun = true;
  ordered_json choice;
  if (request_.chat()) {
    choice = Choice(chunk, "delta",
                    first ? ordered_json{{"role", "assistant"}, {"content", chunk.text}}
                          : ordered_json{{"content", chunk.text}},
                    first);
  } else {
    choice = Choice(chunk, "text", TextOf(chunk, first), first);
  }
  return {Wrap(std::move(choice), first)};
}

std::vector<ordered_json> CompletionFormat::ToolEvents(const SampleChunk& chunk,
                                                       ChoiceState& state) {
  std::vector<ordered_json> deltas = state.answer->TakeDeltas();
  const bool first = !std::exchange(state.begun, true);
  const bool tells = chunk.finish_reason != FinishReason::kNone || first ||
                     request_.num_logprobs.has_value() || request_.return_token_ids;
  if (deltas.empty() && tells) deltas.push_back(ordered_json::object());
  if (first) {
    ordered_json opening = {{"role", "assistant"}};
    if (!deltas.front().contains("content")) opening["content"] = nullptr;
    opening.update(deltas.front());
    deltas.front() = std::move(opening);
  }
  // The chunk's tokens come with its first event, its end with its last one.
  std::vector<ordered_json> out;
  SampleChunk part = chunk;
  for (size_t i = 0; i < deltas.size(); ++i) {
    part.finish_reason = i + 1 == deltas.size() ? chunk.finish_reason : FinishReason::kNone;
    out.push_back(
        Wrap(Choice(part, "delta", std::move(deltas[i]), first && i == 0), first && i == 0));
    part = SampleChunk();
    part.index = chunk.index;
  }
  return out;
}

ordered_json CompletionFormat::Wrap(ordered_json choice, bool first) const {
  ordered_json out = Head(request_.chat() ? "chat.completion.chunk" : "text_completion");
  out["choices"] = ordered_json::array({std::move(choice)});
  if (request_.chat() && request_.return_token_ids && first) {
    out["prompt_token_ids"] = request_.prompts.front().ids;
  }
  if (request_.include_usage) out["usage"] = nullptr;
  return out;
}

ordered_json CompletionFormat::UsageEvent() const {
  ordered_json out = Head(request_.chat() ? "chat.completion.chunk" : "text_completion");
  out["choices"] = ordered_json::array();
  out["usage"] = Usage();
  return out;
}

ordered_json CompletionFormat::Choice(const SampleChunk& chunk, const char* name, ordered_json text,
                                      bool first) {
  ChoiceState& state = choices_[chunk.index];
  ordered_json choice;
  choice["index"] = chunk.index;
  choice[name] = std::move(text);
  choice["logprobs"] = nullptr;
  if (request_.num_logprobs.has_value()) {
    choice["logprobs"] =
        request_.chat() ? ChatLogprobs(chunk) : Logprobs(chunk, first && request_.echo, state);
  }
  choice["finish_reason"] = NameOf(chunk.finish_reason);
  if (state.answer.has_value() && chunk.finish_reason != FinishReason::kNone) {
    choice["finish_reason"] = state.answer->FinishReasonOf(chunk);
    ordered_json problems = state.answer->Problems();
    if (!problems.empty()) choice["tool_call_problems"] = std::move(problems);
  }
  if (!request_.return_token_ids) return choice;
  choice["token_ids"] = chunk.token_ids;
  ordered_json spans = ordered_json::array();
  for (const VersionSpan& span : chunk.version_spans) {
    spans.push_back(
        {{"policy_version", span.policy_version}, {"begin", span.begin}, {"end", span.end}});
  }
  choice["version_spans"] = std::move(spans);
  if (!request_.chat() && first) {
    choice["prompt_token_ids"] = request_.prompts[chunk.index / request_.generation.n].ids;
  }
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
    add(chunk.token_ids[i], &LogprobsOf(chunk)[i], top_of(chunk.top_logprobs, i));
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
    ordered_json token = entry(chunk.token_ids[i], LogprobsOf(chunk)[i]);
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
