// A block of a delta: up to 1024 changes as bits (delta_format.md).
#ifndef TANDEM_COMMON_WEIGHTS_DELTA_BLOCK_H_
#define TANDEM_COMMON_WEIGHTS_DELTA_BLOCK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/weights/bit_stream.h"

namespace tandem::weights {

inline constexpr int kDeltaBlockChanges = 1024;

// A gap is less than 2^47, so that a block's gaps add up to less than 2^57.
inline constexpr int kMaxGapBits = 47;

// Changes in the order of their elements.
struct DeltaBlock {
  int count = 0;
  // Elements between change i and the one before it, or, before a delta's first, the beginning.
  uint64_t gaps[kDeltaBlockChanges];
  // Next minus base as integers of the element's size, never 0.
  int32_t differences[kDeltaBlockChanges];
};

// Writes the block in as few bits as its parameters allow. False where the writer would then hold
// more than `max_bits`: nothing was written.
bool EncodeDeltaBlock(const DeltaBlock& block, int64_t max_bits, BitWriter& writer);

// Reads a block of block.count changes. DATA_LOSS says what is no code of a block with elements of
// that size. Where the reader was overrun the contents are some block or other; the caller asks it.
absl::Status DecodeDeltaBlock(int element_size, BitReader& reader, DeltaBlock& block);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DELTA_BLOCK_H_
