// Bounds how much the rules of a tokenizer.json may expand text. A chain of rules that each replace
// one character by many could exhaust memory with a few characters.
#ifndef TANDEM_COMMON_TOKENIZER_GROWTH_H_
#define TANDEM_COMMON_TOKENIZER_GROWTH_H_

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

// n bytes may grow to 16 n + 64 KiB, and to 256 MiB at most: NFKD expands up to 11 times, ByteLevel
// 2 times, a Replace of a space by U+2581 3 times.
inline constexpr size_t kMaxGrowth = 16;
inline constexpr size_t kFreeGrowthBytes = size_t{64} << 10;
inline constexpr size_t kMaxGrownBytes = size_t{256} << 20;

constexpr size_t MaxBytesFrom(size_t input_bytes) {
  return std::max(input_bytes,
                  std::min(kMaxGrownBytes,
                           std::min(input_bytes, kMaxGrownBytes) * kMaxGrowth + kFreeGrowthBytes));
}

// `stage` as named in tokenizer.json: "normalizer Replace".
inline absl::Status TooMuchText(absl::string_view stage, size_t max_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("tokenizer.json: the ", stage, " makes more than ", max_bytes,
                   " bytes of this text; expected at most ", kMaxGrowth,
                   " times its size; fix the rule, or split the text"));
}

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_GROWTH_H_
