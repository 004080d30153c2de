// The longest prompts. Checked by the engine, and before it by what turns text into tokens: a text
// that cannot fit is refused before it costs memory and time.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_PROMPT_LENGTH_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_PROMPT_LENGTH_H_

#include <cstdint>

#include "absl/status/status.h"

namespace tandem::rollout {

// INVALID_ARGUMENT (CONTEXT_TOO_LONG) for a prompt that fills the context, so that no token can
// follow, or with `generates` false for one that exceeds it.
absl::Status CheckPromptLength(int64_t num_tokens, int64_t max_model_len, bool generates = true);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_PROMPT_LENGTH_H_
