#include "tools/tandem/driver/episode_sequences.h"

#include <algorithm>
#include <numeric>

namespace tandem::driver {
namespace {

// values[begin, end), or nothing if there are no values.
template <typename T>
std::vector<T> Slice(const std::vector<T>& values, int64_t begin, int64_t end) {
  if (values.empty()) return {};
  return {values.begin() + begin, values.begin() + end};
}

// The spans within [begin, end), counted from begin.
std::vector<common::v1::VersionSpan> SpansOf(const Completion& completion, int64_t begin,
                                             int64_t end) {
  std::vector<common::v1::VersionSpan> out;
  for (common::v1::VersionSpan span : completion.version_spans) {
    span.set_begin(std::max(begin, span.begin()) - begin);
    span.set_end(std::min(end, span.end()) - begin);
    if (span.begin() < span.end()) out.push_back(std::move(span));
  }
  return out;
}

// Adds the rewards of tokens that are not sampled to the last sampled one.
void PassRewards(const std::vector<double>& rewards, EpisodeSequence& sequence) {
  const double sum = std::accumulate(rewards.begin(), rewards.end(), 0.0);
  const auto last = std::find_if(
      sequence.parts.rbegin(), sequence.parts.rend(),
      [](const SequencePart& part) { return part.is_sampled && !part.token_rewards.empty(); });
  if (last != sequence.parts.rend()) last->token_rewards.back() += sum;
}

}  // namespace

bool BeginsWithItsPrompt(const Completion& completion) {
  return !completion.segments.empty() &&
         completion.segments.front().kind == common::v1::SEGMENT_KIND_PROMPT;
}

std::vector<PromptImage> EpisodeSequence::images() const {
  std::vector<PromptImage> out = prompt_images;
  for (const SequencePart& part : parts) {
    out.insert(out.end(), part.images.begin(), part.images.end());
  }
  return out;
}

std::vector<EpisodeSequence> SequencesOf(const std::vector<uint32_t>& prompt_ids,
                                         const Completion& completion,
                                         const std::vector<PromptImage>& prompt_images) {
  std::vector<EpisodeSequence> out;
  const auto experts = [&completion](int64_t begin, int64_t end) {
    if (completion.routed_experts.empty()) return std::string();
    const size_t each = completion.routed_experts.size() / completion.token_ids.size();
    return completion.routed_experts.substr(begin * each, (end - begin) * each);
  };
  // Likeliest tokens of the teacher for each token.
  const int64_t top_k =
      completion.teacher_top_ids.empty()
          ? 0
          : static_cast<int64_t>(completion.teacher_top_ids.size() / completion.token_ids.size());
  std::vector<EpisodeSegment> segments = completion.segments;
  if (!BeginsWithItsPrompt(completion)) {
    out.push_back({prompt_ids, completion.prompt_routed_experts, {}, prompt_images});
  }
  if (segments.empty()) {
    segments = {
        {common::v1::SEGMENT_KIND_SAMPLED, static_cast<int64_t>(completion.token_ids.size()), 0}};
  }
  int64_t begin = 0;
  for (const EpisodeSegment& segment : segments) {
    const int64_t end = begin + segment.num_tokens;
    std::vector<uint32_t> ids = Slice(completion.token_ids, begin, end);
    switch (segment.kind) {
      case common::v1::SEGMENT_KIND_PROMPT:
        if (!out.empty()) PassRewards(Slice(completion.token_rewards, begin, end), out.back());
        out.push_back({std::move(ids), experts(begin, end), {}, segment.images});
        break;
      case common::v1::SEGMENT_KIND_SAMPLED:
        out.back().parts.push_back(
            {.is_sampled = true,
             .token_ids = std::move(ids),
             .reward = segment.reward,
             .logprobs = Slice(completion.processed_logprobs, begin, end),
             .teacher_logprobs = Slice(completion.teacher_logprobs, begin, end),
             .teacher_top_ids = Slice(completion.teacher_top_ids, begin * top_k, end * top_k),
             .teacher_top_logprobs =
                 Slice(completion.teacher_top_logprobs, begin * top_k, end * top_k),
             .token_rewards = Slice(completion.token_rewards, begin, end),
             .version_spans = SpansOf(completion, begin, end),
             .routed_experts = experts(begin, end)});
        break;
      default:  // the environment's
        PassRewards(Slice(completion.token_rewards, begin, end), out.back());
        out.back().parts.push_back({.is_sampled = false,
                                    .token_ids = std::move(ids),
                                    .logprobs = {},
                                    .teacher_logprobs = {},
                                    .teacher_top_ids = {},
                                    .teacher_top_logprobs = {},
                                    .token_rewards = {},
                                    .version_spans = {},
                                    .routed_experts = experts(begin, end),
                                    .images = segment.images});
        break;
    }
    begin = end;
  }
  return out;
}

}  // namespace tandem::driver
