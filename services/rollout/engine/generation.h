// The engine's inputs and outputs: requests, and the tokens of their samples.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_GENERATION_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_GENERATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/rollout/sampler/filter_params.h"
#include "services/rollout/sampler/logit_adjustments.h"
#include "services/rollout/sampler/top_logprobs.h"

namespace tandem::rollout {

struct RequestImages;  // images/request_images.h

enum class FinishReason { kNone, kStop, kLength, kAborted };

// A sample that an earlier call has partly sampled.
struct BegunSample {
  int32_t index = 0;
  std::vector<int32_t> token_ids;
  bool ended = false;  // complete
};

struct GenerationRequest {
  std::string id;  // for Abort()
  std::vector<int32_t> prompt_ids;
  std::shared_ptr<const RequestImages>
      images;                    // of prompt_ids, by Engine::ReadImages(); null: none
  FilterParams filter;           // temperature, top_k, top_p, min_p
  PenaltyParams penalties;       // and biases of tokens
  std::optional<uint64_t> seed;  // unset: random
  int32_t n = 1;
  std::optional<int64_t> max_tokens;  // unset: the rest of the context
  int64_t min_tokens = 0;             // before which nothing ends the sample
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool return_text = false;
  bool show_special_tokens = false;     // in the text; stop strings then match them too
  int32_t num_top_logprobs = 0;         // top tokens per position, besides the sampled one
  bool processed_top_logprobs = false;  // the top tokens of the processed logits, not the raw ones
  bool return_ranks = false;            // of the sampled tokens, among the same logits
  bool return_routed_experts = false;   // of prompt and sampled tokens, cached ones too
  bool stream = false;                  // a chunk per step; else one per finished sample
  int32_t priority = 0;                 // higher is admitted first
  std::string client_id;                // clients of equal priority share fairly
  // Samples to resume, or already complete; each index once.
  std::vector<BegunSample> begun;

  // Whether the logits are needed on the host besides what the sampler returns.
  bool wants_logits() const { return num_top_logprobs > 0 || return_ranks; }
};

// The weights that sampled the tokens [begin, end) of a chunk.
struct VersionSpan {
  int64_t policy_version = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t incarnation = 0;  // of the trainer that published it; 0: none

  bool IsOf(int64_t version, int64_t trainer) const {
    return policy_version == version && incarnation == trainer;
  }
};

// Bytes [begin, end) of a text.
struct TextSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

// New tokens of one sample.
struct SampleChunk {
  int32_t index = 0;
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;                          // raw
  std::vector<float> processed_logprobs;                // of logits with penalties, / temperature
  std::vector<std::vector<TokenLogprob>> top_logprobs;  // one list per token, if requested
  std::vector<int64_t> ranks;     // 1 for the likeliest token; one per token, if requested
  std::string text;               // complete characters
  std::vector<TextSpan> special;  // the special tokens in it, if they are shown
  std::string stop_string;        // that ended the sample
  std::vector<VersionSpan> version_spans;
  FinishReason finish_reason = FinishReason::kNone;  // set in a sample's last chunk
  bool first = false;                                // a sample's first chunk
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;
  uint64_t seed = 0;
  // If requested (model::RoutedLayout): of the prompt's tokens, in a sample's first chunk; and those
  // that have become known of the sample's tokens, begun ones left out, one after another. A token's
  // are known when it has been computed, after it was sampled: the last chunk fills up what is
  // missing, with unknown ones.
  std::vector<uint16_t> prompt_routed_experts;
  std::vector<uint16_t> routed_experts;
};

// Called on the engine thread; they must return quickly. on_done is called last and exactly once,
// unless the engine is destroyed first.
struct GenerationCallbacks {
  std::function<void(SampleChunk chunk)> on_chunk;
  std::function<void(absl::Status status)> on_done;
};

struct ScoreRequest {
  std::vector<int32_t> token_ids;
  double temperature = 1.0;
  int32_t num_top_logprobs = 0;                 // top tokens per position; at temperature 1 only
  std::shared_ptr<const RequestImages> images;  // of token_ids, by Engine::ReadImages(); null: none
  // The first token whose log-prob is wanted; the prefix cache may serve those before it. 0 and 1: all.
  int64_t first_scored = 0;
};

struct ScoreResult {
  std::vector<float> logprobs;  // of the tokens from first_scored on, but the first
  std::vector<std::vector<TokenLogprob>> top_logprobs;  // one list per log-prob, if requested
  std::vector<float> class_logits;                      // of a reward model, in place of log-probs
  int64_t policy_version = 0;
  int64_t incarnation = 0;  // as in VersionSpan
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_GENERATION_H_
