// The additive digest as computed by the threads of a grid. The threads' parts add up to the run's
// sum for any grid size. weight_kernels.cu compiles it for the device.
//
// A thread block processes digest blocks of 1024 words; each thread handles the same word positions
// in every block, so their factors stay in its registers.
#ifndef TANDEM_COMMON_WEIGHTS_ADDITIVE_DIGEST_KERNEL_H_
#define TANDEM_COMMON_WEIGHTS_ADDITIVE_DIGEST_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "common/weights/additive_digest_constants.h"
#include "common/weights/host_device.h"
#include "common/weights/weight_runs.h"

namespace tandem::weights {

// Eight words per thread, so sixteen factors in registers.
inline constexpr int kDigestThreads = 128;
inline constexpr int kDigestThreadWords = static_cast<int>(kDigestBlockWords) / kDigestThreads;

// Upper bound on the digest blocks that one row touches.
TANDEM_HOST_DEVICE constexpr int64_t DigestBlocksOfRow(const DigestRun& run) {
  constexpr int64_t kBytes = kDigestBlockWords * kDigestWordBytes;
  const int64_t first = run.offset / kBytes;
  // Exact for a run of one row; other rows may start anywhere in a block.
  return run.rows == 1 ? (run.offset + run.row_bytes + kBytes - 1) / kBytes - first
                       : (run.row_bytes + 2 * kBytes - 2) / kBytes;
}

// A row seen as words. Words that lie wholly within it take one load if the row's bytes are aligned
// like the tensor's words.
struct DigestRow {
  const std::byte* bytes;
  int64_t begin;  // bytes of the tensor
  int64_t end;
  int in_one;  // bytes per load: 4, 2 or 1

  TANDEM_HOST_DEVICE static DigestRow Of(const DigestRun& run, int64_t row) {
    DigestRow out;
    out.bytes = run.bytes + row * run.row_bytes;
    out.begin = run.offset + row * run.stride;
    out.end = out.begin + run.row_bytes;
    const uint64_t apart = reinterpret_cast<uint64_t>(out.bytes) - static_cast<uint64_t>(out.begin);
    out.in_one = apart % 4 == 0 ? 4 : apart % 2 == 0 ? 2 : 1;
    return out;
  }

  // Bytes of the word outside the row count as zeros.
  TANDEM_HOST_DEVICE uint32_t Word(int64_t word) const {
    const int64_t at = word * kDigestWordBytes;
    const std::byte* const from = bytes + (at - begin);
    if (at >= begin && at + kDigestWordBytes <= end) {
      if (in_one == 4) return *reinterpret_cast<const uint32_t*>(from);
      if (in_one == 2) {
        const auto* const halves = reinterpret_cast<const uint16_t*>(from);
        return halves[0] | static_cast<uint32_t>(halves[1]) << 16;
      }
    }
    uint32_t out = 0;
    for (int i = 0; i < kDigestWordBytes; ++i) {
      if (at + i < begin || at + i >= end) continue;
      out |= static_cast<uint32_t>(from[i]) << (8 * i);
    }
    return out;
  }
};

// Adds to lanes[0..1] the contribution of thread `thread` of kDigestThreads in block `block` of
// `num_blocks`.
TANDEM_HOST_DEVICE inline void DigestThread(const DigestRun& run, int64_t block, int64_t num_blocks,
                                            int thread, uint64_t* lanes) {
  constexpr int64_t kBlockBytes = kDigestBlockWords * kDigestWordBytes;
  uint32_t factors[2][kDigestThreadWords];
  TANDEM_UNROLL
  for (int i = 0; i < kDigestThreadWords; ++i) {
    const uint64_t place = static_cast<uint64_t>(thread + i * kDigestThreads);
    factors[0][i] = DigestWordFactor(0, place);
    factors[1][i] = DigestWordFactor(1, place);
#ifdef __CUDA_ARCH__
    // Stops the compiler from recomputing these constants at each use, which costs more than the
    // digest.
    asm volatile("" : "+r"(factors[0][i]), "+r"(factors[1][i]));
#endif
  }
  const int64_t per_row = DigestBlocksOfRow(run);
  for (int64_t unit = block; unit < run.rows * per_row; unit += num_blocks) {
    const int64_t number = run.rows == 1 ? 0 : unit / per_row;
    const DigestRow row = DigestRow::Of(run, number);
    const int64_t digest_block = row.begin / kBlockBytes + (unit - number * per_row);
    const int64_t first_word = digest_block * kDigestBlockWords + thread;
    const int64_t begin = digest_block * kBlockBytes;
    uint32_t words[kDigestThreadWords];
    if (row.in_one == 4 && begin >= row.begin && begin + kBlockBytes <= row.end) {
      // A full block: the loads are independent.
      const auto* const from = reinterpret_cast<const uint32_t*>(row.bytes + (begin - row.begin));
      TANDEM_UNROLL
      for (int i = 0; i < kDigestThreadWords; ++i) words[i] = from[thread + i * kDigestThreads];
    } else {
      TANDEM_UNROLL
      for (int i = 0; i < kDigestThreadWords; ++i) {
        const int64_t word = first_word + i * kDigestThreads;
        const int64_t at = word * kDigestWordBytes;
        words[i] = at + kDigestWordBytes > row.begin && at < row.end ? row.Word(word) : 0;
      }
    }
    uint64_t sums[2] = {0, 0};
    TANDEM_UNROLL
    for (int i = 0; i < kDigestThreadWords; ++i) {
      sums[0] += uint64_t{factors[0][i]} * words[i];
      sums[1] += uint64_t{factors[1][i]} * words[i];
    }
    for (uint64_t lane = 0; lane < 2; ++lane) {
      lanes[lane] += DigestBlockFactor(lane, static_cast<uint64_t>(digest_block)) * sums[lane];
    }
  }
}

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_ADDITIVE_DIGEST_KERNEL_H_
