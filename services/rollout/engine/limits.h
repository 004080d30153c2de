// Limits of a request to this engine.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_LIMITS_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/routed_experts.h"
#include "services/rollout/engine/generation.h"

namespace tandem::rollout {

// Maximum samples per prompt.
inline constexpr int32_t kMaxSamples = 4096;
// Maximum top log-probs per position of a generation, and of a score that the OpenAI API asks for.
// What a Score call may ask for is kMaxTeacherTopK (common/config/teacher.h).
inline constexpr int32_t kMaxTopLogprobs = 20;

// Maximum tokens with a bias.
inline constexpr size_t kMaxLogitBiases = 4096;

struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;  // tokens of prompt and completion that the context and the cache hold
  bool has_tokenizer = false;
  bool classifies = false;  // a reward model: scores sequences and samples nothing
  // Of the experts that a request may ask for; an error says why it may not.
  absl::StatusOr<model::RoutedLayout> routed_layout =
      absl::InvalidArgumentError("the model has no layer with experts");
};

// INVALID_ARGUMENT names the offending proto field (GenerateRequest, ScoreRequest);
// FAILED_PRECONDITION (REWARD_MODEL) for generation by a reward model.
absl::Status CheckRequest(const GenerationRequest& request, const RequestLimits& limits);
absl::Status CheckRequest(const ScoreRequest& request, const RequestLimits& limits);

// The same for GenerateRequest.begun; the request must pass CheckRequest().
absl::Status CheckBegun(const GenerationRequest& request, const RequestLimits& limits);

// FAILED_PRECONDITION (REWARD_MODEL) if the model is one, which has no log-probs.
absl::Status CheckHasLogProbs(const RequestLimits& limits);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_LIMITS_H_
