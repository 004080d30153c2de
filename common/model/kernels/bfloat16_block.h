// The inner loops of bfloat16 products: up to 32 rows, in one or two tiles, times a panel of 32
// columns, with AMX and with AVX512-BF16.
#ifndef TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_BLOCK_H_
#define TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_BLOCK_H_

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>

#include "common/model/kernels/bfloat16_tile.h"

namespace tandem::model::kernels::bfloat16 {

// Two by two tiles of sums use all eight tile registers: every operand tile is loaded once and
// multiplied twice, and four independent sums hide the latency of a multiplication.
constexpr int64_t kBlockRows = 2 * kTileRows;  // four of AMX's eight tiles hold sums
constexpr int64_t kPanelColumns = 2 * kTileRows;
constexpr int64_t kStepBytes = 2 * kTileBytes;  // of a panel, for 32 of k

// A block of the left side. For each step of k it stores the parts one after another, and for each
// part one tile, or two if there are more than 16 rows.
struct Block {
  const char* left;
  const char* panel;
  int64_t rows;
  int64_t steps;         // of 32 of k
  int parts;             // 1, or 2 if the left side was float32
  bool first;            // first block that reads this panel: prefetches it
  float* sums;           // [rows, 32]
  int64_t stride_bytes;  // between rows of sums

  bool two_tiles() const { return rows > kTileRows; }
};

// Prefetch distance in a panel.
constexpr int64_t kAheadBytes = 4 * kStepBytes;

inline void AskFor(const char* step) {
#pragma GCC unroll 32
  // At a panel's end this reaches into the next panel, which is read next; a prefetch never faults.
  for (int64_t line = 0; line < kStepBytes; line += 64) __builtin_prefetch(step + line, 0, 3);
}

// The compiler's AMX intrinsics do not declare which memory they read and write.
inline void Fence() { asm volatile("" ::: "memory"); }

// This thread's tile configuration, from the first product of a task to its end.
class Tiles {
 public:
  explicit Tiles(bool used) : used_(used) {}
  // Tiles in use are 8 KiB that the system saves whenever it switches from this thread.
  ~Tiles() {
    if (used_) Release();
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  bool used() const { return used_; }
  // Configures the tiles for blocks of this many rows.
  void Shape(int64_t rows) {
    // Configuring clears all tiles, and only the last block of rows has another height.
    if (!used_ || rows == rows_) return;
    Configure(rows);
    rows_ = rows;
  }

 private:
  // Tiles 0 to 3 hold sums, row by row; 4 and 5 the right side, 6 and 7 the left.
  TANDEM_TILES static void Configure(int64_t rows) {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    const auto upper = static_cast<uint8_t>(std::min(rows, kTileRows));
    const auto lower = static_cast<uint8_t>(std::max<int64_t>(rows - kTileRows, 1));
    const uint8_t heights[] = {upper, upper, lower, lower, kTileRows, kTileRows, upper, lower};
    for (int i = 0; i < 8; ++i) {
      shapes.rows[i] = heights[i];
      shapes.row_bytes[i] = 64;
    }
    Fence();
    _tile_loadconfig(&shapes);
  }
  TANDEM_TILES static void Release() { _tile_release(); }

  const bool used_;
  int64_t rows_ = 0;
};

template <bool kTwoTiles, int kParts>
TANDEM_TILES inline void MultiplyStep(const char* left, const char* panel) {
  _tile_loadd(4, panel, 64);
  _tile_loadd(5, panel + kTileBytes, 64);
  // Both parts of a float32 left side meet the right tiles that are loaded already.
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    _tile_loadd(6, left, 64);
    _tile_dpbf16ps(0, 6, 4);
    _tile_dpbf16ps(1, 6, 5);
    left += kTileBytes;
    if constexpr (kTwoTiles) {
      _tile_loadd(7, left, 64);
      _tile_dpbf16ps(2, 7, 4);
      _tile_dpbf16ps(3, 7, 5);
      left += kTileBytes;
    }
  }
}

template <bool kTwoTiles, int kParts, bool kFirst>
TANDEM_TILES void MultiplyByTiles(const Block& block) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTwoTiles) {
    _tile_zero(2);
    _tile_zero(3);
  }
  Fence();
  const char* left = block.left;
  const char* panel = block.panel;
  for (int64_t i = 0; i < block.steps; ++i) {
    if constexpr (kFirst) AskFor(panel + kAheadBytes);
    MultiplyStep<kTwoTiles, kParts>(left, panel);
    left += (kTwoTiles ? 2 : 1) * kParts * kTileBytes;
    panel += kStepBytes;
  }
  char* const sums = reinterpret_cast<char*>(block.sums);
  _tile_stored(0, sums, block.stride_bytes);
  _tile_stored(1, sums + 64, block.stride_bytes);
  if constexpr (kTwoTiles) {
    char* const lower = sums + kTileRows * block.stride_bytes;
    _tile_stored(2, lower, block.stride_bytes);
    _tile_stored(3, lower + 64, block.stride_bytes);
  }
  Fence();
}

// Multiplies rows [row, row + kRows) of the block, all in one tile. At most 8 rows: 16 sums, the
// panel's two registers and a broadcast word fit into 32 registers.
template <int kRows, int kParts, bool kFirst>
TANDEM_VECTORS void MultiplyRowsByVectors(const Block& block, int64_t row) {
  const int64_t tiles = block.two_tiles() ? 2 : 1;
  const char* left = block.left + row / kTileRows * kTileBytes + row % kTileRows * kTileRowBytes;
  const char* panel = block.panel;
  __m512 sums[kRows][2];
#pragma GCC unroll 8
  for (auto& sum : sums) sum[0] = sum[1] = _mm512_setzero_ps();
  for (int64_t step = 0; step < block.steps; ++step) {
    if constexpr (kFirst) AskFor(panel + kAheadBytes);
    for (int64_t pair = 0; pair < kTileRows; ++pair) {
      const auto low = (__m512bh)_mm512_load_si512(panel + pair * kTileRowBytes);
      const auto high = (__m512bh)_mm512_load_si512(panel + kTileBytes + pair * kTileRowBytes);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        const char* const words = left + part * tiles * kTileBytes + pair * 4;
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          int word;
          std::memcpy(&word, words + i * kTileRowBytes, sizeof(word));
          const auto value = (__m512bh)_mm512_set1_epi32(word);
          sums[i][0] = _mm512_dpbf16_ps(sums[i][0], value, low);
          sums[i][1] = _mm512_dpbf16_ps(sums[i][1], value, high);
        }
      }
    }
    left += tiles * kParts * kTileBytes;
    panel += kStepBytes;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    float* const out = block.sums + (row + i) * block.stride_bytes / 4;
    _mm512_storeu_ps(out, sums[i][0]);
    _mm512_storeu_ps(out + kTileRows, sums[i][1]);
  }
}

template <int kParts, bool kFirst>
void MultiplyByVectors(const Block& block) {
  int64_t row = 0;
  const auto take = [&](auto rows, auto first) {
    MultiplyRowsByVectors<decltype(rows)::value, kParts, decltype(first)::value>(block, row);
    row += decltype(rows)::value;
  };
  const auto take_rest = [&](auto first) {
    const int64_t left = block.rows - row;
    if (left >= 8) return take(std::integral_constant<int, 8>(), first);
    if (left >= 4) return take(std::integral_constant<int, 4>(), first);
    if (left >= 2) return take(std::integral_constant<int, 2>(), first);
    take(std::integral_constant<int, 1>(), first);
  };
  // The first rows bring the panel into the cache; the others need no prefetch.
  take_rest(std::bool_constant<kFirst>());
  while (row < block.rows) take_rest(std::false_type());
}

template <int kParts, bool kFirst>
void Multiply(const Block& block, Tiles& tiles) {
  if (!tiles.used()) return MultiplyByVectors<kParts, kFirst>(block);
  tiles.Shape(block.rows);
  if (block.two_tiles()) return MultiplyByTiles<true, kParts, kFirst>(block);
  MultiplyByTiles<false, kParts, kFirst>(block);
}

// sums = block times panel.
inline void Multiply(const Block& block, Tiles& tiles) {
  if (block.parts == 1) {
    return block.first ? Multiply<1, true>(block, tiles) : Multiply<1, false>(block, tiles);
  }
  return block.first ? Multiply<2, true>(block, tiles) : Multiply<2, false>(block, tiles);
}

}  // namespace tandem::model::kernels::bfloat16

#endif  // defined(__x86_64__)

#endif  // TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_BLOCK_H_
