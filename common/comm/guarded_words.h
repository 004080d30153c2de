// Integers sent between two ranks in triplicate, with a bitwise majority vote on receipt, because
// the transfers that follow depend on them.
#ifndef TANDEM_COMMON_COMM_GUARDED_WORDS_H_
#define TANDEM_COMMON_COMM_GUARDED_WORDS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem::comm {

template <size_t N>
using Words = std::array<int64_t, N>;

// Allocates the int64 [3 * N] tensor to receive into.
template <size_t N>
at::Tensor RoomForWords() {
  return at::empty({static_cast<int64_t>(3 * N)}, at::kLong);
}

template <size_t N>
at::Tensor GuardWords(const Words<N>& words) {
  at::Tensor out = RoomForWords<N>();
  auto* const to = static_cast<int64_t*>(out.data_ptr());
  for (size_t copy = 0; copy < 3; ++copy) std::copy(words.begin(), words.end(), to + copy * N);
  return out;
}

template <size_t N>
Words<N> ReadGuarded(const at::Tensor& guarded) {
  const auto* const from = static_cast<const int64_t*>(guarded.const_data_ptr());
  Words<N> words;
  for (size_t i = 0; i < N; ++i) {
    const int64_t a = from[i], b = from[N + i], c = from[2 * N + i];
    words[i] = (a & b) | (b & c) | (a & c);
  }
  return words;
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_GUARDED_WORDS_H_
