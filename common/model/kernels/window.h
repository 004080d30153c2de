// Window: which of the tokens before it a token sees.
#ifndef TANDEM_COMMON_MODEL_KERNELS_WINDOW_H_
#define TANDEM_COMMON_MODEL_KERNELS_WINDOW_H_

#include <cstdint>

#include "common/model/kernels/alibi.h"

namespace tandem::model {

// A sliding window of `size` tokens, the token itself included; or, if `chunked`, the sequence is cut
// into chunks of `size` tokens and a token sees those of its own chunk up to itself. A number stands for
// a sliding window of as many tokens, 0 for none: all tokens are seen.
struct Window {
  // NOLINTNEXTLINE(google-explicit-constructor): a number is a window.
  TANDEM_HOST_DEVICE constexpr Window(int64_t tokens = 0, bool in_chunks = false)
      : size(tokens), chunked(in_chunks) {}

  int64_t size;
  bool chunked;

  TANDEM_HOST_DEVICE constexpr bool IsLimited() const { return size > 0; }

  // Returns the first position that the token at `position` sees. Never falls as the position grows.
  TANDEM_HOST_DEVICE constexpr int64_t OldestSeen(int64_t position) const {
    if (size <= 0) return 0;
    if (chunked) return position / size * size;
    return position < size ? 0 : position + 1 - size;
  }

  friend constexpr bool operator==(const Window& a, const Window& b) {
    return a.size == b.size && a.chunked == b.chunked;
  }
  friend constexpr bool operator<(const Window& a, const Window& b) {
    return a.size != b.size ? a.size < b.size : a.chunked < b.chunked;
  }
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_KERNELS_WINDOW_H_
