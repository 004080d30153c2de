// The inner loop of every matrix product here: a tile of C in registers accumulates products of one
// column of A and one row of B at a time. Each element of C is one chain of fused multiply-adds in
// the order of k, continued from what C holds. So its bits do not depend on how rows, columns and k
// are cut into tiles and blocks, nor on what else is in the batch.
#if defined(TANDEM_COMMON_MODEL_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_TILE_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_TILE_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_TILE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "common/model/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// 12 of AVX2's 16 registers accumulate; 16 of AVX-512's 32 are enough to hide the latency. Fewer
// than 8 sums would stall on one another, so a few rows process several strips at once.
constexpr size_t kTileRows = kLanes >= 16 ? 8 : (kLanes >= 8 ? 6 : 4);
constexpr size_t kTileCols = 2 * kLanes;
// The right side is cut into strips of kTileCols columns. Data packed ahead is stored in panels of
// some strips, row by row, so that one row of the left side times a panel reads a single stream.
// Four strips give a single row its eight sums.
constexpr size_t kPanelStrips = 4;
constexpr size_t kPanelCols = kPanelStrips * kTileCols;

// A row of a strip, kTileCols elements, is read as two registers: columns [0, kLanes) and the rest.
// In float32 they are stored in this order. In bfloat16 columns j and j + kLanes are adjacent, so
// that a shift and a mask widen a whole register of them.
HWY_INLINE void LoadStripRow(const float* HWY_RESTRICT from, FloatVec& low, FloatVec& high) {
  const Floats d;
  low = hn::LoadU(d, from);
  high = hn::LoadU(d, from + kLanes);
}

HWY_INLINE void LoadStripRow(const BFloat16* HWY_RESTRICT from, FloatVec& low, FloatVec& high) {
  const Floats d;
#if HWY_TARGET == HWY_SCALAR
  low = LoadFloats(d, from);
  high = LoadFloats(d, from + 1);
#else
  const hn::RebindToUnsigned<Floats> bits;
  const hn::Repartition<uint16_t, Floats> halves;
  const auto pairs = hn::BitCast(bits, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from)));
  low = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
  high = hn::BitCast(d, hn::And(pairs, hn::Set(bits, 0xFFFF0000u)));
#endif
}

// Returns the column at a place of a bfloat16 strip's row.
constexpr size_t StripColumn(size_t place) { return place / 2 + place % 2 * kLanes; }

// Prefetches a cache line that is read soon, but not at once: into the second-level cache.
HWY_INLINE void FetchSoon(const char* at) { __builtin_prefetch(at, 0, 2); }

// C[i][j] = (kFirst ? 0 : C[i][j]) + sum over k of A[i][k] B[k][j], for kRows rows and the columns
// of kStrips adjacent strips. A[i][k] is at a[i * a_row + k * a_k], row k of B at b + k * b_k. With
// kAhead, also prefetches as many bytes as the strips of B have, from `next` on.
template <size_t kRows, bool kFirst, size_t kStrips = 1, bool kAhead = false, typename B>
HWY_INLINE void Tile(size_t k_size, const float* HWY_RESTRICT a, ptrdiff_t a_row, ptrdiff_t a_k,
                     const B* HWY_RESTRICT b, ptrdiff_t b_k, float* HWY_RESTRICT c, ptrdiff_t c_row,
                     const char* next = nullptr) {
  const Floats d;
  constexpr size_t kVectors = 2 * kStrips;
  // Every loop over `sums` is unrolled fully: with an index known only at run time it would live in
  // memory instead of registers.
  FloatVec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      sums[i][v] = kFirst ? hn::Zero(d) : hn::LoadU(d, c + i * c_row + v * kLanes);
    }
  }
  for (size_t k = 0; k < k_size; ++k) {
    if constexpr (kAhead) {
      constexpr size_t kBytes = kStrips * kTileCols * sizeof(B);
      for (size_t byte = 0; byte < kBytes; byte += 64) FetchSoon(next + byte);
      next += kBytes;
    }
#pragma GCC unroll 8
    for (size_t s = 0; s < kStrips; ++s) {
      FloatVec low, high;
      LoadStripRow(b + s * kTileCols, low, high);
#pragma GCC unroll 8
      for (size_t i = 0; i < kRows; ++i) {
        const FloatVec value = hn::Set(d, a[i * a_row]);
        sums[i][2 * s] = hn::MulAdd(value, low, sums[i][2 * s]);
        sums[i][2 * s + 1] = hn::MulAdd(value, high, sums[i][2 * s + 1]);
      }
    }
    a += a_k;
    b += b_k;
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[i][v], d, c + i * c_row + v * kLanes);
  }
}

// Calls fn(std::integral_constant<size_t, n>()) for the n in [1, kTileRows] that is `rows`.
template <typename Fn>
HWY_INLINE void WithHeight(size_t rows, const Fn& fn) {
  switch (rows) {
    case 1:
      return fn(std::integral_constant<size_t, 1>());
    case 2:
      return fn(std::integral_constant<size_t, 2>());
    case 3:
      return fn(std::integral_constant<size_t, 3>());
    case 4:
      return fn(std::integral_constant<size_t, 4>());
    case 5:
      return fn(std::integral_constant<size_t, std::min<size_t>(kTileRows, 5)>());
    case 6:
      return fn(std::integral_constant<size_t, std::min<size_t>(kTileRows, 6)>());
    case 7:
      return fn(std::integral_constant<size_t, std::min<size_t>(kTileRows, 7)>());
    default:
      return fn(std::integral_constant<size_t, kTileRows>());
  }
}

// The same for one strip and any number of rows up to kTileRows.
template <bool kFirst, bool kAhead = false, typename B>
HWY_INLINE void TileOfRows(size_t rows, size_t k_size, const float* a, ptrdiff_t a_row,
                           ptrdiff_t a_k, const B* b, ptrdiff_t b_k, float* c, ptrdiff_t c_row,
                           const char* next = nullptr) {
  WithHeight(rows, [&](auto height) HWY_ATTR {
    Tile<decltype(height)::value, kFirst, 1, kAhead>(k_size, a, a_row, a_k, b, b_k, c, c_row, next);
  });
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
