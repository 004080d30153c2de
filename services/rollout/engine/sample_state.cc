#include "services/rollout/engine/sample_state.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "common/model/kernels/log_probs.h"
#include "common/model/routed_experts.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/images/request_images.h"

namespace tandem::rollout {

int64_t ActiveRequest::image_bytes() const {
  return spec.images == nullptr ? 0 : spec.images->file_bytes();
}

void MakeSamples(ActiveRequest& request, const tokenizer::Tokenizer* tokenizer) {
  const GenerationRequest& spec = request.spec;
  const bool wants_text = spec.return_text || !spec.stop.empty();
  std::shared_ptr<const AdjustmentBase> base;
  if (spec.penalties.any()) {
    base = std::make_shared<const AdjustmentBase>(spec.penalties, spec.prompt_ids);
  }
  for (int32_t index = 0; index < spec.n; ++index) {
    auto sample = std::make_unique<SampleState>();
    sample->arrival = request.arrival;
    sample->priority = spec.priority;
    sample->client = spec.client_id.empty() ? 0 : absl::HashOf(spec.client_id);
    sample->index = index;
    sample->request = &request;
    sample->num_prompt_tokens = static_cast<int64_t>(spec.prompt_ids.size());
    if (spec.images != nullptr) {
      sample->places = &spec.images->places;
      sample->hashes.SetDigests(spec.images->TokenDigests());
    }
    sample->chunk.index = index;
    sample->chunk.first = true;
    if (wants_text && tokenizer != nullptr) {
      sample->text.emplace(*tokenizer, spec.stop, spec.show_special_tokens);
    }
    if (base != nullptr) sample->adjustments.emplace(base);
    request.samples.push_back(std::move(sample));
  }
  request.num_unfinished = spec.n;
  if (spec.begun.empty()) {
    SampleState& first = *request.samples.front();
    first.tokens = spec.prompt_ids;
    first.num_samples = spec.n;
    // The token before the first one with a log-prob is computed: its row predicts it.
    if (request.scores && !request.classifies) first.max_cached = request.first_scored - 1;
    first.limits_cache = spec.return_routed_experts;
    return;
  }
  for (const BegunSample& begun : spec.begun) {
    SampleState& sample = *request.samples[begun.index];
    sample.tokens = begun.token_ids;
    sample.finished = begun.ended;
    sample.limits_cache = spec.return_routed_experts;
    sample.num_begun = static_cast<int64_t>(begun.token_ids.size());
    request.num_unfinished -= begun.ended ? 1 : 0;
  }
  for (const auto& sample : request.samples) {
    if (sample->finished) {
      sample->tokens.clear();
    } else {
      sample->tokens.insert(sample->tokens.begin(), spec.prompt_ids.begin(), spec.prompt_ids.end());
    }
  }
}

namespace {

// Whether token `id`, the last of `num_sampled`, ends the sample.
absl::StatusOr<FinishReason> EndsWith(SampleState& sample, int32_t id, int64_t num_sampled) {
  const ActiveRequest& request = *sample.request;
  const bool may_stop = num_sampled >= request.spec.min_tokens;
  const bool stop_id =
      may_stop && std::binary_search(request.stop_ids.begin(), request.stop_ids.end(), id);
  bool stop_string = false;
  if (sample.text.has_value()) {
    ASSIGN_OR_RETURN(stop_string, sample.text->Push(id, may_stop));
  }
  if (stop_id || stop_string) return FinishReason::kStop;
  if (num_sampled >= request.max_tokens) return FinishReason::kLength;
  return FinishReason::kNone;
}

}  // namespace

absl::StatusOr<FinishReason> ReplayBegun(SampleState& sample) {
  for (int64_t i = 1; i <= sample.num_sampled(); ++i) {
    const int32_t id = sample.tokens[sample.num_prompt_tokens + i - 1];
    if (sample.adjustments.has_value()) sample.adjustments->Count(id);
    ASSIGN_OR_RETURN(const FinishReason reason, EndsWith(sample, id, i));
    if (reason == FinishReason::kNone) continue;
    if (i == sample.num_sampled()) return reason;
    return rpc::InvalidField(
        "begun", absl::StrCat("sample ", sample.index, " ends with its token ", i, " of ",
                              sample.num_sampled(), "; expected nothing after it"));
  }
  return FinishReason::kNone;
}

absl::StatusOr<FinishReason> AddToken(SampleState& sample, const SampledToken& token,
                                      int64_t policy_version, int64_t incarnation) {
  SampleChunk& chunk = sample.chunk;
  sample.tokens.push_back(token.id);
  if (sample.adjustments.has_value()) sample.adjustments->Count(token.id);
  chunk.token_ids.push_back(token.id);
  chunk.logprobs.push_back(token.logprob);
  chunk.processed_logprobs.push_back(token.processed_logprob);
  const int64_t end = static_cast<int64_t>(chunk.token_ids.size());
  if (chunk.version_spans.empty() ||
      !chunk.version_spans.back().IsOf(policy_version, incarnation)) {
    chunk.version_spans.push_back({policy_version, end - 1, end, incarnation});
  } else {
    chunk.version_spans.back().end = end;
  }
  return EndsWith(sample, token.id, sample.num_sampled());
}

namespace {

// The logits that the sampler draws from, before its filters.
std::vector<float> ProcessedLogits(const SampleState& sample, const float* logits,
                                   int64_t vocab_size) {
  std::vector<float> out(logits, logits + vocab_size);
  if (sample.adjustments.has_value()) sample.adjustments->Apply(out.data(), vocab_size);
  const double temperature = sample.request->spec.filter.temperature;
  if (temperature == 0.0 || temperature == 1.0) return out;
  const float scale = model::kernels::InverseTemperature(temperature);
  for (float& logit : out) logit *= scale;
  return out;
}

}  // namespace

void AddTopLogprobs(SampleState& sample, const SampledToken& token, const float* logits,
                    int64_t vocab_size) {
  const ActiveRequest& request = *sample.request;
  const GenerationRequest& spec = request.spec;
  if (!spec.wants_logits() || request.done || token.id < 0) return;
  TokenLogprob known{token.id, token.logprob};
  std::vector<float> processed;
  if (spec.processed_top_logprobs) {
    processed = ProcessedLogits(sample, logits, vocab_size);
    logits = processed.data();
    known.logprob = token.processed_logprob;
  }
  if (spec.num_top_logprobs > 0) {
    sample.chunk.top_logprobs.push_back(
        TopLogprobs(logits, vocab_size, spec.num_top_logprobs, known));
  }
  if (spec.return_ranks) sample.chunk.ranks.push_back(RankOf(logits, vocab_size, token.id));
}

void AddExperts(SampleState& sample, int64_t first, const std::vector<uint16_t>& experts,
                int64_t values_per_token) {
  const auto known = static_cast<int64_t>(sample.routed_experts.size()) - first * values_per_token;
  if (known >= static_cast<int64_t>(experts.size())) return;
  sample.routed_experts.insert(sample.routed_experts.end(), experts.begin() + known, experts.end());
}

namespace {

// Hands over the experts that are known and were not handed over.
void TakeExperts(SampleState& sample, int64_t values_per_token, SampleChunk& out) {
  std::vector<uint16_t>& known = sample.routed_experts;
  if (out.first) {
    std::vector<uint16_t>& prompt = out.prompt_routed_experts;
    const auto size = static_cast<size_t>(sample.num_prompt_tokens * values_per_token);
    prompt.assign(known.begin(), known.begin() + std::min(size, known.size()));
    prompt.resize(size, model::kUnknownExpert);
    sample.num_routed_sent = sample.num_prompt_tokens + sample.num_begun;
  }
  // A sample that ends before its prompt is computed has no tokens of its own.
  const bool is_last = out.finish_reason != FinishReason::kNone;
  const auto begin = static_cast<size_t>(sample.num_routed_sent * values_per_token);
  std::vector<uint16_t>& experts = out.routed_experts;
  if (known.size() > begin) experts.assign(known.begin() + begin, known.end());
  const int64_t all = std::max(sample.num_tokens(), sample.num_routed_sent);
  if (is_last) {
    experts.resize((all - sample.num_routed_sent) * values_per_token, model::kUnknownExpert);
  }
  sample.num_routed_sent += static_cast<int64_t>(experts.size()) / values_per_token;
}

}  // namespace

SampleChunk TakeChunk(SampleState& sample, FinishReason reason, int64_t routed_values_per_token) {
  const ActiveRequest& request = *sample.request;
  SampleChunk out = std::exchange(sample.chunk, SampleChunk{});
  sample.chunk.index = out.index;
  out.finish_reason = reason;
  if (out.first) {
    out.num_prompt_tokens = sample.num_prompt_tokens;
    out.num_cached_tokens = sample.num_cached;
    out.seed = request.seed;
  }
  if (request.spec.return_routed_experts) TakeExperts(sample, routed_values_per_token, out);
  if (sample.text.has_value()) {
    // Text that does not decode is left out; its tokens are there.
    if (reason != FinishReason::kNone) sample.text->Finish().IgnoreError();
    std::string text = sample.text->Take(out.special);
    if (request.spec.return_text) {
      out.text = std::move(text);
    } else {
      out.special.clear();
    }
    if (reason == FinishReason::kStop) out.stop_string = sample.text->stop_string();
  }
  return out;
}

}  // namespace tandem::rollout
