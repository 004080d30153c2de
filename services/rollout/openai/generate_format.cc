#include "services/rollout/openai/generate_format.h"

#include <algorithm>
#include <utility>

#include "services/rollout/openai/token_text.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

// What stopped the sample: one of the request's ids or strings; null for the end of the sequence.
ordered_json StopReason(const SampleChunk& chunk, const std::vector<int32_t>& stop_token_ids) {
  if (chunk.finish_reason != FinishReason::kStop) return nullptr;
  if (!chunk.stop_string.empty()) return chunk.stop_string;
  if (chunk.token_ids.empty()) return nullptr;
  const int32_t last = chunk.token_ids.back();
  const bool asked =
      std::find(stop_token_ids.begin(), stop_token_ids.end(), last) != stop_token_ids.end();
  return asked ? ordered_json(last) : ordered_json();
}

}  // namespace

GenerateFormat::GenerateFormat(const CompletionRequest& request, std::string model,
                               int64_t policy_version, int64_t incarnation)
    : AnswerFormat(request, policy_version, incarnation), model_(std::move(model)) {}

ordered_json GenerateFormat::Head() const {
  return {{"request_id", request_.generation.id},
          {"model", model_},
          {"policy_version", policy_version()}};
}

ordered_json GenerateFormat::Choice(const SampleChunk& chunk) const {
  ordered_json choice = {{"index", chunk.index}, {"token_ids", chunk.token_ids}};
  choice["logprobs"] = nullptr;
  if (request_.num_logprobs.has_value()) {
    ordered_json content = ordered_json::array();
    for (size_t i = 0; i < chunk.token_ids.size(); ++i) {
      const int32_t id = chunk.token_ids[i];
      ordered_json top = ordered_json::array();
      if (i < chunk.top_logprobs.size()) {
        for (size_t k = 0; k < chunk.top_logprobs[i].size(); ++k) {
          const TokenLogprob& token = chunk.top_logprobs[i][k];
          top.push_back({{"token", TokenText(nullptr, token.id)},
                         {"token_id", token.id},
                         {"logprob", token.logprob},
                         {"rank", k + 1}});
        }
      }
      content.push_back({{"token", TokenText(nullptr, id)},
                         {"token_id", id},
                         {"logprob", LogprobsOf(chunk)[i]},
                         {"rank", i < chunk.ranks.size() ? ordered_json(chunk.ranks[i]) : nullptr},
                         {"top_logprobs", std::move(top)}});
    }
    choice["logprobs"] = {{"content", std::move(content)}};
  }
  choice["finish_reason"] = NameOf(chunk.finish_reason);
  choice["stop_reason"] = StopReason(chunk, request_.generation.stop_token_ids);
  ordered_json versions = ordered_json::array();
  for (const VersionSpan& span : chunk.version_spans) {
    versions.push_back(
        {{"version", span.policy_version}, {"start", span.begin}, {"end", span.end}});
  }
  choice["weight_versions"] = std::move(versions);
  return choice;
}

ordered_json GenerateFormat::Whole(const std::vector<SampleChunk>& chunks) {
  ordered_json choices = ordered_json::array();
  for (const SampleChunk& chunk : chunks) {
    Count(chunk);
    choices.push_back(Choice(chunk));
  }
  ordered_json out = Head();
  out["choices"] = std::move(choices);
  out["usage"] = Usage();
  if (request_.return_token_ids) out["prompt_token_ids"] = request_.prompts.front().ids;
  return out;
}

std::vector<ordered_json> GenerateFormat::Events(const SampleChunk& chunk) {
  Count(chunk);
  ordered_json out = Head();
  out["choices"] = ordered_json::array({Choice(chunk)});
  if (request_.return_token_ids && chunk.first) {
    out["prompt_token_ids"] = request_.prompts.front().ids;
  }
  if (request_.include_usage) out["usage"] = nullptr;
  return {std::move(out)};
}

ordered_json GenerateFormat::UsageEvent() const {
  ordered_json out = Head();
  out["choices"] = ordered_json::array();
  out["usage"] = Usage();
  return out;
}

}  // namespace tandem::rollout::openai
