// Numbers of any width in bits, one after another; the first one in the lowest bits of the first
// byte.
#ifndef TANDEM_COMMON_WEIGHTS_BIT_STREAM_H_
#define TANDEM_COMMON_WEIGHTS_BIT_STREAM_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

namespace tandem::weights {

static_assert(std::endian::native == std::endian::little, "words are stored as they lie");

// Writes to memory that its owner has found large enough.
class BitWriter {
 public:
  // Each Put() stores a word, so up to 8 bytes behind the last bit are overwritten too.
  static constexpr int64_t kSlackBytes = 8;

  explicit BitWriter(std::byte* out) : begin_(out), out_(out) {}

  // The `count` lowest bits, at most 56, of `bits`, which has no others.
  void Put(uint64_t bits, int count) {
    word_ |= bits << filled_;
    filled_ += count;
    std::memcpy(out_, &word_, sizeof(word_));
    out_ += filled_ / 8;
    word_ >>= filled_ / 8 * 8;
    filled_ %= 8;
  }

  int64_t bits() const { return (out_ - begin_) * 8 + filled_; }

  // What is left of the last byte is zeros.
  int64_t size_bytes() const { return (bits() + 7) / 8; }

 private:
  std::byte* const begin_;
  std::byte* out_;
  uint64_t word_ = 0;
  int filled_ = 0;  // less than 8 between calls
};

// Reads zeros behind the end, and nothing in memory there; overrun() tells.
class BitReader {
 public:
  explicit BitReader(absl::Span<const std::byte> bytes)
      : bytes_(bytes.data()), size_(bytes.size()) {}

  // The next 57 bits at least, the first one lowest. Stays.
  uint64_t Peek() const {
    uint64_t word = 0;
    const int64_t at = bit_ / 8;
    if (at + static_cast<int64_t>(sizeof(word)) <= size_) {
      std::memcpy(&word, bytes_ + at, sizeof(word));
    } else if (at < size_) {
      std::memcpy(&word, bytes_ + at, size_ - at);
    }
    return word >> (bit_ % 8);
  }

  void Skip(int count) { bit_ += count; }

  // At most 56 bits.
  uint64_t Take(int count) {
    const uint64_t bits = Peek() & ((uint64_t{1} << count) - 1);
    Skip(count);
    return bits;
  }

  int64_t bits() const { return bit_; }  // read so far
  bool overrun() const { return bit_ > size_ * 8; }

  // Whether all bytes are read, up to zeros in the last one.
  bool AtEnd() const { return (bit_ + 7) / 8 == size_ && (bit_ % 8 == 0 || Peek() == 0); }

 private:
  const std::byte* const bytes_;
  const int64_t size_;
  int64_t bit_ = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BIT_STREAM_H_
