// A stream of integers of any bit width. The first one occupies the lowest bits of the first byte.
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

// Writes to a caller-owned buffer, without bounds checks.
class BitWriter {
 public:
  // Each Put() stores a whole word, so it overwrites up to 8 bytes behind the last bit.
  static constexpr int64_t kSlackBytes = 8;

  explicit BitWriter(std::byte* out) : begin_(out), out_(out) {}

  // Appends the `count` lowest bits of `bits`, at most 56; the higher bits must be 0. With the 7
  // bits at most that are left from before, they fit into the word.
  void Put(uint64_t bits, int count) {
    word_ |= bits << filled_;
    filled_ += count;
    std::memcpy(out_, &word_, sizeof(word_));
    out_ += filled_ / 8;
    word_ >>= filled_ / 8 * 8;
    filled_ %= 8;
  }

  int64_t bits() const { return (out_ - begin_) * 8 + filled_; }

  // Includes the last partial byte, padded with zeros.
  int64_t size_bytes() const { return (bits() + 7) / 8; }

 private:
  std::byte* const begin_;
  std::byte* out_;
  uint64_t word_ = 0;
  int filled_ = 0;  // less than 8 between calls
};

// Past the end it returns zeros and reads no memory; overrun() reports this.
class BitReader {
 public:
  explicit BitReader(absl::Span<const std::byte> bytes)
      : bytes_(bytes.data()), size_(bytes.size()) {}

  // Returns at least the next 57 bits, the first one lowest, without advancing.
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

  // Reads and consumes `count` bits, at most 56.
  uint64_t Take(int count) {
    const uint64_t bits = Peek() & ((uint64_t{1} << count) - 1);
    Skip(count);
    return bits;
  }

  int64_t bits() const { return bit_; }  // read so far
  bool overrun() const { return bit_ > size_ * 8; }

  // True if all bytes are read, apart from zero padding in the last one.
  bool AtEnd() const { return (bit_ + 7) / 8 == size_ && (bit_ % 8 == 0 || Peek() == 0); }

 private:
  const std::byte* const bytes_;
  const int64_t size_;
  int64_t bit_ = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BIT_STREAM_H_
