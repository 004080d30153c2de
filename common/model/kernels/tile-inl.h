// The inner loop of every matrix product here: a tile of C in registers, to which one column of A
// and one row of B after another are added. Each element of C is one chain of fused multiply-adds
// in the order of k, continued from what C holds; so it is the same bits however rows, columns and
// k are cut into tiles and blocks, and whatever else is in the batch.
#if defined(TANDEM_COMMON_MODEL_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_TILE_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_TILE_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_TILE_INL_H_
#endif

#include "common/model/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// 12 of AVX2's 16 registers accumulate; 16 of AVX-512's 32 are enough to hide the latency. Fewer
// than 8 would wait for one another, so one or two rows take several panels at once.
constexpr size_t kTileRows = kLanes >= 16 ? 8 : (kLanes >= 8 ? 6 : 4);
constexpr size_t kTileCols = 2 * kLanes;

// C[i][j] = (kFirst ? 0 : C[i][j]) + sum over k of A[i][k] B[k][j], for kRows rows and the columns
// of kPanels panels. A[i][k] is at a[i * a_row + k * a_k]; B[k][j] of panel p at b[p * b_panel + k
// * b_k + j].
template <size_t kRows, bool kFirst, size_t kPanels = 1, typename B>
HWY_INLINE void Tile(size_t k_size, const float* HWY_RESTRICT a, ptrdiff_t a_row, ptrdiff_t a_k,
                     const B* HWY_RESTRICT b, ptrdiff_t b_k, float* HWY_RESTRICT c, ptrdiff_t c_row,
                     ptrdiff_t b_panel = 0) {
  const Floats d;
  constexpr size_t kVectors = 2 * kPanels;
  FloatVec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      sums[i][v] = kFirst ? hn::Zero(d) : hn::LoadU(d, c + i * c_row + v * kLanes);
    }
  }
  for (size_t k = 0; k < k_size; ++k) {
    FloatVec row[kVectors];
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      row[v] = LoadFloats(d, b + static_cast<ptrdiff_t>(v / 2) * b_panel + (v % 2) * kLanes);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kRows; ++i) {
      const FloatVec value = hn::Set(d, a[i * a_row]);
#pragma GCC unroll 8
      for (size_t v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(value, row[v], sums[i][v]);
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

// The same for any number of rows up to kTileRows.
template <bool kFirst, typename B>
HWY_INLINE void TileOfRows(size_t rows, size_t k_size, const float* a, ptrdiff_t a_row,
                           ptrdiff_t a_k, const B* b, ptrdiff_t b_k, float* c, ptrdiff_t c_row) {
  switch (rows) {
    case 1:
      return Tile<1, kFirst>(k_size, a, a_row, a_k, b, b_k, c, c_row);
    case 2:
      return Tile<2, kFirst>(k_size, a, a_row, a_k, b, b_k, c, c_row);
    case 3:
      return Tile<3, kFirst>(k_size, a, a_row, a_k, b, b_k, c, c_row);
    case 4:
      return Tile<4, kFirst>(k_size, a, a_row, a_k, b, b_k, c, c_row);
    case 5:
      return Tile < kTileRows < 5 ? kTileRows : 5,
             kFirst > (k_size, a, a_row, a_k, b, b_k, c, c_row);
    case 6:
      return Tile < kTileRows < 6 ? kTileRows : 6,
             kFirst > (k_size, a, a_row, a_k, b, b_k, c, c_row);
    case 7:
      return Tile < kTileRows < 7 ? kTileRows : 7,
             kFirst > (k_size, a, a_row, a_k, b, b_k, c, c_row);
    default:
      return Tile<kTileRows, kFirst>(k_size, a, a_row, a_k, b, b_k, c, c_row);
  }
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
