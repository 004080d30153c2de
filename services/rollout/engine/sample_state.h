// A request that the engine works on, and each of its samples.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_SAMPLE_STATE_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_SAMPLE_STATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/engine/text_output.h"
#include "services/rollout/sampler/sampler.h"
#include "services/rollout/scheduler/sequence.h"

namespace tandem::rollout {

struct ActiveRequest;

// A sequence with its sampled tokens that are not handed over yet.
struct SampleState : Sequence {
  ActiveRequest* request = nullptr;
  bool finished = false;
  SampleChunk chunk;
  std::optional<TextOutput> text;
  std::optional<LogitAdjustments> adjustments;  // if the request has penalties or biases
  // If the request wants them: the experts of the leading tokens, as they were computed first; a token
  // that is computed again keeps its own. And the number of tokens whose experts were handed over,
  // prompt and begun ones included.
  std::vector<uint16_t> routed_experts;
  int64_t num_routed_sent = 0;
  BlockHash routed_root;          // under which the first of them was computed
  int64_t num_routed_blocks = 0;  // whose experts later requests can have (SampleRouting)
  int64_t num_begun = 0;          // sampled by an earlier call
};

struct ActiveRequest {
  GenerationRequest spec;
  GenerationCallbacks callbacks;
  int64_t arrival = 0;
  absl::Time received;
  uint64_t seed = 0;
  int64_t max_tokens = 0;  // resolved against the context
  std::vector<std::unique_ptr<SampleState>> samples;
  int64_t num_unfinished = 0;
  std::vector<int32_t> stop_ids;  // in force, sorted
  // Tokens that may still be computed; includes the prompt until that is done.
  int64_t num_queued_tokens = 0;
  bool prompt_computed = false;
  bool done = false;

  // A Score() call: has one sample, which is scored and never sampled.
  bool scores = false;
  double score_temperature = 1.0;
  int64_t first_scored = 1;  // the first token with a log-prob
  std::vector<float> score_logprobs;
  std::vector<std::vector<TokenLogprob>> score_top_logprobs;
  bool classifies = false;  // by a reward model: only the last token's result is needed
  std::vector<float> class_logits;
  std::function<void(absl::StatusOr<ScoreResult>)> on_score;

  // Of the files of its images.
  int64_t image_bytes() const;
};

// Creates the request's samples. Those to schedule have tokens: only the first, which stands for
// all until the prompt is computed; or, if an earlier call sampled some, every one that is not
// complete. `tokenizer` may be null if no text is needed.
void MakeSamples(ActiveRequest& request, const tokenizer::Tokenizer* tokenizer);

// Replays a resumed sample's earlier tokens; returns a reason if they end it. Their text goes out
// with the sample's first chunk. INVALID_ARGUMENT if the sample ended before the last of them.
absl::StatusOr<FinishReason> ReplayBegun(SampleState& sample);

// Adds a sampled token to the sample and its chunk, and returns a reason if it ends the sample.
absl::StatusOr<FinishReason> AddToken(SampleState& sample, const SampledToken& token,
                                      int64_t policy_version, int64_t incarnation);

// Stores the top log-probs and the token's rank from the logits [vocab_size], if the request wants
// them. Call before AddToken().
void AddTopLogprobs(SampleState& sample, const SampledToken& token, const float* logits,
                    int64_t vocab_size);

// Adds the experts of the tokens from `first` on, of `values_per_token` each, to those of all tokens
// before, which are known.
void AddExperts(SampleState& sample, int64_t first, const std::vector<uint16_t>& experts,
                int64_t values_per_token);

// Takes the sample's chunk for hand-over and leaves it empty. With a reason it is the last chunk,
// and includes the rest of the text. `routed_values_per_token`: of model::RoutedLayout; 0 without.
SampleChunk TakeChunk(SampleState& sample, FinishReason reason, int64_t routed_values_per_token);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_SAMPLE_STATE_H_
