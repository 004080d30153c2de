#include "tools/tandem/driver/completion_experts.h"

#include <algorithm>

namespace tandem::driver {
namespace {

constexpr char kUnknownByte = '\xFF';

}  // namespace

size_t BytesPerToken(const Completion& completion) {
  if (completion.num_prompt_tokens == 0) return 0;
  return completion.prompt_routed_experts.size() /
         static_cast<size_t>(completion.num_prompt_tokens);
}

void FillUp(Completion& completion) {
  completion.routed_experts.resize(BytesPerToken(completion) * completion.token_ids.size(),
                                   kUnknownByte);
}

void FillUnknown(absl::string_view known, size_t bytes_per_token, size_t first,
                 std::string& experts) {
  if (bytes_per_token == 0) return;
  const size_t end = std::min(known.size(), experts.size() - std::min(first, experts.size()));
  for (size_t at = 0; at + bytes_per_token <= end; at += bytes_per_token) {
    const absl::string_view token = absl::string_view(experts).substr(first + at, bytes_per_token);
    const bool is_unknown =
        std::all_of(token.begin(), token.end(), [](char byte) { return byte == kUnknownByte; });
    if (is_unknown) std::copy_n(known.begin() + at, bytes_per_token, experts.begin() + first + at);
  }
}

}  // namespace tandem::driver
