// A request while the engine works on it, and each of its samples.
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

// A sequence with what was sampled of it and not yet handed over.
struct SampleState : Sequence {
  ActiveRequest* request = nullptr;
  bool finished = false;
  SampleChunk chunk;
  std::optional<TextOutput> text;
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
  int64_t num_queued_tokens =
      0;  // that it may still take, its prompt included until it is computed
  bool prompt_computed = false;
  bool done = false;

  // Of a Score() call: has one sample, which is scored and never sampled.
  bool scores = false;
  double score_temperature = 1.0;
  std::vector<float> score_logprobs;
  std::vector<std::vector<TokenLogprob>> score_top_logprobs;
  std::function<void(absl::StatusOr<ScoreResult>)> on_score;
};

// The samples of a request. Those to be scheduled have tokens: the first, which stands for all
// until the prompt is computed; or, where some were begun by an earlier call, each that has not
// ended by itself. `tokenizer` may be null where no text is wanted.
void MakeSamples(ActiveRequest& request, const tokenizer::Tokenizer* tokenizer);

// What the tokens that a sample was begun with make of it: a reason where they end it. The text
// that they are is handed over with the sample's first chunk. INVALID_ARGUMENT where it had ended
// before the last of them.
absl::StatusOr<FinishReason> ReplayBegun(SampleState& sample);

// Adds a sampled token to the sample and its chunk, and says whether it ends the sample.
absl::StatusOr<FinishReason> AddToken(SampleState& sample, const SampledToken& token,
                                      int64_t policy_version, int64_t incarnation);

// Keeps the likeliest tokens beside the one that was sampled from the logits [vocab_size], where
// the request asks for them. Goes before AddToken().
void AddTopLogprobs(SampleState& sample, const SampledToken& token, const float* logits,
                    int64_t vocab_size);

// What is to be handed over now; the sample's chunk is empty afterwards. With a reason it is the
// last, and carries the rest of the text.
SampleChunk TakeChunk(SampleState& sample, FinishReason reason);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_SAMPLE_STATE_H_
