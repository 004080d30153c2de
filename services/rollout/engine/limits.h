// What a request may ask of this engine.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_LIMITS_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "services/rollout/engine/generation.h"

namespace tandem::rollout {

// Samples of one prompt at most.
inline constexpr int32_t kMaxSamples = 4096;
// Likeliest tokens that are answered of a position at most.
inline constexpr int32_t kMaxTopLogprobs = 20;

struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;  // tokens of prompt and completion that the context and the cache hold
  bool has_tokenizer = false;
};

// INVALID_ARGUMENT with the field of the proto (GenerateRequest, ScoreRequest) that is at fault.
absl::Status CheckRequest(const GenerationRequest& request, const RequestLimits& limits);
absl::Status CheckRequest(const ScoreRequest& request, const RequestLimits& limits);

// The same of GenerateRequest.begun, of a request that is fine otherwise.
absl::Status CheckBegun(const GenerationRequest& request, const RequestLimits& limits);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_LIMITS_H_
