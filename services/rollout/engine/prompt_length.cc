#include "services/rollout/engine/prompt_length.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"

namespace tandem::rollout {

absl::Status CheckPromptLength(int64_t num_tokens, int64_t max_model_len, bool generates) {
  if (num_tokens < max_model_len || (!generates && num_tokens == max_model_len)) {
    return absl::OkStatus();
  }
  const std::string expected =
      generates ? absl::StrCat("fewer than ", max_model_len,
                               " tokens (the longest sequence of prompt and completion)")
                : absl::StrCat("at most ", max_model_len, " tokens");
  return rpc::WithReason(
      rpc::InvalidField("token_ids", absl::StrCat("expected ", expected, ", found ", num_tokens)),
      "CONTEXT_TOO_LONG",
      {{"max_model_len", absl::StrCat(max_model_len)}, {"found", absl::StrCat(num_tokens)}});
}

}  // namespace tandem::rollout
