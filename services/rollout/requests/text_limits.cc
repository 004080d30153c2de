#include "services/rollout/requests/text_limits.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"

namespace tandem::rollout {
namespace {

// Tokenizing less costs nothing worth a limit. Leaves room for what normalizers drop from a text.
constexpr int64_t kLeastMaxTextBytes = int64_t{256} << 10;

}  // namespace

absl::Status TextLimits::CheckText(absl::string_view text, absl::string_view field) const {
  if (static_cast<int64_t>(text.size()) <= max_text_bytes) return absl::OkStatus();
  return rpc::WithReason(
      rpc::InvalidField(field,
                        absl::StrCat("expected at most ", max_text_bytes, " bytes (", max_model_len,
                                     " of the longest tokens), found ", text.size())),
      "CONTEXT_TOO_LONG", {{"max_model_len", absl::StrCat(max_model_len)}});
}

TextLimits MakeTextLimits(const RequestLimits& limits, const tokenizer::Tokenizer* tokenizer) {
  TextLimits out;
  out.max_model_len = limits.max_model_len;
  if (tokenizer == nullptr) return out;
  size_t longest = 1;
  for (int64_t id = 0; id < limits.vocab_size; ++id) {
    const std::string* token = tokenizer->IdToToken(static_cast<int32_t>(id));
    if (token != nullptr) longest = std::max(longest, token->size());
  }
  out.max_text_bytes =
      std::max(kLeastMaxTextBytes, limits.max_model_len * static_cast<int64_t>(longest));
  return out;
}

}  // namespace tandem::rollout
