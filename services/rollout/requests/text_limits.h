// TextLimits: the longest text that is worth tokenizing.
#ifndef TANDEM_SERVICES_ROLLOUT_REQUESTS_TEXT_LIMITS_H_
#define TANDEM_SERVICES_ROLLOUT_REQUESTS_TEXT_LIMITS_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/limits.h"

namespace tandem::rollout {

struct TextLimits {
  int64_t max_model_len = std::numeric_limits<int64_t>::max();
  int64_t max_text_bytes = std::numeric_limits<int64_t>::max();

  // INVALID_ARGUMENT (CONTEXT_TOO_LONG) for a text that exceeds the context in any case.
  absl::Status CheckText(absl::string_view text, absl::string_view field) const;
};

// `tokenizer` may be null: then no text comes. Looks at every token once.
TextLimits MakeTextLimits(const RequestLimits& limits, const tokenizer::Tokenizer* tokenizer);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_REQUESTS_TEXT_LIMITS_H_
