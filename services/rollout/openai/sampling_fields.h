// The fields that say how tokens are sampled: of completions and chats at the top of the request, of
// /inference/v1/generate in its sampling_params.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_SAMPLING_FIELDS_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_SAMPLING_FIELDS_H_

#include "absl/status/status.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/openai/request_fields.h"

namespace tandem::rollout::openai {

// Default of max_tokens for completions and tokens.
inline constexpr int64_t kDefaultMaxTokens = 16;

// Reads temperature, filters, penalties, biases, seed, n, stops and lengths. Refuses what would change
// the result and is not offered. Ranges are the engine's to check.
absl::Status ReadSampling(RequestFields& fields, GenerationRequest& generation);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_SAMPLING_FIELDS_H_
