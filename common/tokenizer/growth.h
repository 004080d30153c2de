// How much text the rules of a tokenizer.json may make out of what they are given. Rules that
// replace one character by many, one after another, would fill any memory with a few characters.
#ifndef TANDEM_COMMON_TOKENIZER_GROWTH_H_
#define TANDEM_COMMON_TOKENIZER_GROWTH_H_

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

// Of n bytes 16 n + 64 KiB may come, and 256 MiB at most: NFKD makes 11 bytes of one, ByteLevel 2,
// a Replace of a space by U+2581 3.
inline constexpr size_t kMaxGrowth = 16;
inline constexpr size_t kFreeGrowthBytes = size_t{64} << 10;
inline constexpr size_t kMaxGrownBytes = size_t{256} << 20;

constexpr size_t MaxBytesFrom(size_t input_bytes) {
  return std::max(input_bytes,
                  std::min(kMaxGrownBytes,
                           std::min(input_bytes, kMaxGrownBytes) * kMaxGrowth + kFreeGrowthBytes));
}

// `stage` as it stands in tokenizer.json: "normalizer Replace".
inline absl::Status TooMuchText(absl::string_view stage, size_t max_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("tokenizer.json: the ", stage, " makes more than ", max_bytes,
                   " bytes of this text; expected at most ", kMaxGrowth,
                   " times its size; mend the rule, or split the text"));
}

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_GROWTH_H_
