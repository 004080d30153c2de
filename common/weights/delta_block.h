// Encodes a delta block: up to 1024 changes as bits (delta_format.md).
#ifndef TANDEM_COMMON_WEIGHTS_DELTA_BLOCK_H_
#define TANDEM_COMMON_WEIGHTS_DELTA_BLOCK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/weights/bit_stream.h"

namespace tandem::weights {

// Each block has its own parameters, which cost at most 27 bits: little beside 1024 changes.
inline constexpr int kDeltaBlockChanges = 1024;

// A gap is less than 2^47, so a block's gaps add up to less than 2^57.
inline constexpr int kMaxGapBits = 47;

// Changes in element order.
struct DeltaBlock {
  int count = 0;
  // Unchanged elements between change i and its predecessor, or the start before a delta's first.
  uint64_t gaps[kDeltaBlockChanges];
  // Next minus base, as integers of the element's size; never 0.
  int32_t differences[kDeltaBlockChanges];
};

// Writes the block in as few bits as its parameters allow. Returns false, writing nothing, if the
// writer would exceed `max_bits`.
bool EncodeDeltaBlock(const DeltaBlock& block, int64_t max_bits, BitWriter& writer);

// Reads a block of block.count changes. DATA_LOSS if the bits encode no block with elements of that
// size. After an overrun the contents are arbitrary; the caller checks reader.overrun().
absl::Status DecodeDeltaBlock(int element_size, BitReader& reader, DeltaBlock& block);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DELTA_BLOCK_H_
