// Shared by products with a right side in panels and in strips: the left side as float32, its
// tiles, and the conversion of sums to the result. Blocks of A stay in the second-level cache while
// strips of B stream through the first.
#if defined(TANDEM_COMMON_MODEL_KERNELS_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_PRODUCT_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_PRODUCT_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "common/model/kernels/gemm.h"
#include "common/model/kernels/pack-inl.h"
#include "common/model/kernels/product_scratch.h"
#include "common/model/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// With kBlockDepth, a block of A takes 96 KiB (AVX-512) or 144 KiB (AVX2) of the second-level
// cache.
constexpr int64_t kBlockRows = kTileRows * 16;
constexpr int64_t kStripWidth = kTileCols;
// A strip of this depth fills most of the first-level cache: 24 KiB.
constexpr int64_t kBlockDepth = std::min<int64_t>(384, 6144 / kStripWidth);
constexpr int64_t kLeftScratch = kBlockRows * kBlockDepth;

// Splits k into blocks of about the same depth. A short last block would load and store all sums
// for little work. The cuts do not show in the result: each sum continues from what C holds.
inline int64_t EvenDepth(int64_t k, int64_t most) {
  const int64_t blocks = std::max<int64_t>(1, (k + most - 1) / most);
  const int64_t even = (k + blocks - 1) / blocks;
  return std::clamp<int64_t>((even + 7) / 8 * 8, 1, most);
}

// A block of A as float32: element (i, k) of tile t is at data[t * tile + i * row + k * k].
struct Left {
  const float* data;
  ptrdiff_t tile;
  ptrdiff_t row;
  ptrdiff_t k;
};

// A tile's elements in reading order, so that beside a panel the tile stays in the first-level
// cache. It takes 9 KiB there (AVX2); spread over the rows of a column-major A it would take 24 KiB
// of cache lines, and weight gradients would be an eighth slower.
constexpr int64_t kTileSize = kTileRows * kBlockDepth;

template <typename T>
Left ConvertLeft(const ConstMatrix& a, int64_t row, int64_t rows, int64_t k, int64_t depth,
                 float* buffer) {
  const T* const data = static_cast<const T*>(a.data) + row * a.row_stride + k * a.col_stride;
  if (a.col_stride == 1) {
    for (int64_t i = 0; i < rows; ++i) CopyRow(data + i * a.row_stride, depth, buffer + i * depth);
    return {buffer, static_cast<ptrdiff_t>(kTileRows * depth), static_cast<ptrdiff_t>(depth), 1};
  }
  float column[kBlockRows] = {};
  for (int64_t i = 0; i < depth; ++i) {
    CopyRow(data + i * a.col_stride, rows, column);
    for (int64_t tile = 0; tile * static_cast<int64_t>(kTileRows) < rows; ++tile) {
      std::memcpy(buffer + tile * kTileSize + i * kTileRows, column + tile * kTileRows,
                  kTileRows * sizeof(float));
    }
  }
  return {buffer, kTileSize, 1, static_cast<ptrdiff_t>(kTileRows)};
}

// Reads float32 rows in place; converts other layouts into the buffer.
inline Left PrepareLeft(const ConstMatrix& a, int64_t row, int64_t rows, int64_t k, int64_t depth,
                        float* buffer) {
  if (a.type == Element::kBFloat16) return ConvertLeft<BFloat16>(a, row, rows, k, depth, buffer);
  if (a.col_stride != 1) return ConvertLeft<float>(a, row, rows, k, depth, buffer);
  const auto stride = static_cast<ptrdiff_t>(a.row_stride);
  return {static_cast<const float*>(a.data) + row * a.row_stride + k,
          static_cast<ptrdiff_t>(kTileRows) * stride, stride, 1};
}

// Calls fn(first row, number of rows) for tiles of a left side. If its rows are evenly spaced, the
// tiles have about the same height: a low tile would stall on its own sums.
template <typename Fn>
HWY_INLINE void ForTiles(const Left& a, int64_t rows, const Fn& fn) {
  constexpr int64_t kMost = kTileRows;
  const int64_t tiles = (rows + kMost - 1) / kMost;
  const bool even = a.tile == kMost * a.row;
  for (int64_t tile = 0, i = 0; tile < tiles; ++tile) {
    const int64_t height =
        even ? (rows - i + tiles - tile - 1) / (tiles - tile) : std::min(kMost, rows - i);
    fn(a.data + (even ? i * a.row : tile * a.tile), i, height);
    i += height;
  }
}

template <typename C>
void FinishRow(const float* from, const C* bias, int64_t count, C* to) {
  const Floats d;
  int64_t j = 0;
  if (bias == nullptr) return CopyRow(from, count, to);
  for (; j + static_cast<int64_t>(kLanes) <= count; j += kLanes) {
    StoreFloats(d, hn::Add(hn::LoadU(d, from + j), LoadFloats(d, bias + j)), to + j);
  }
  for (; j < count; ++j) FromFloat(from[j] + ToFloat(bias[j]), to[j]);
}

template <typename C>
void FinishRows(const float* from, int64_t from_stride, int64_t rows, int64_t cols, const C* bias,
                C* to, int64_t to_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    FinishRow(from + i * from_stride, bias, cols, to + i * to_stride);
  }
}

// Writes the block's result to C.
inline void FinishBlock(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                        const float* result, int64_t width) {
  if (p.c_type == Element::kBFloat16) {
    return FinishRows(result, width, rows, cols,
                      p.bias == nullptr ? nullptr : static_cast<const BFloat16*>(p.bias) + col,
                      static_cast<BFloat16*>(p.c) + row * p.c_row_stride + col, p.c_row_stride);
  }
  FinishRows(result, width, rows, cols,
             p.bias == nullptr ? nullptr : static_cast<const float*>(p.bias) + col,
             static_cast<float*>(p.c) + row * p.c_row_stride + col, p.c_row_stride);
}

// Whether sums accumulate directly in the result; else the result is finished from the scratch.
inline bool IsSummedInPlace(const Product& p) {
  return p.c_type == Element::kFloat32 && p.bias == nullptr;
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
