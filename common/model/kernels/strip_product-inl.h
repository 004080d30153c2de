// A product that packs its right side into float32 strips on the way.
#if defined(TANDEM_COMMON_MODEL_KERNELS_STRIP_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_STRIP_PRODUCT_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_STRIP_PRODUCT_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_STRIP_PRODUCT_INL_H_
#endif

#include <algorithm>

#include "common/model/kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

template <typename T>
void PackStrips(const ConstMatrix& b, int64_t depth, int64_t first_col, int64_t n, int64_t begin,
                int64_t end, float* to) {
  const T* const data = static_cast<const T*>(b.data);
  for (int64_t strip = begin; strip < end; ++strip) {
    const int64_t col = first_col + strip * kStripWidth;
    const int64_t cols = std::min(kStripWidth, n - col);
    float* const out = to + strip * depth * kStripWidth;
    if (b.col_stride == 1) {
      PackRows(data + col, b.row_stride, cols, depth, out);
    } else {
      PackTransposed(data + col * b.col_stride, b.col_stride, cols, depth, out);
    }
  }
}

// Packs strips [begin, end) of the columns from first_col on; `to` is the address of strip 0.
inline void PackStrips(const ConstMatrix& b, int64_t depth, int64_t first_col, int64_t n,
                       int64_t begin, int64_t end, float* to) {
  if (b.type == Element::kBFloat16) {
    return PackStrips<BFloat16>(b, depth, first_col, n, begin, end, to);
  }
  PackStrips<float>(b, depth, first_col, n, begin, end, to);
}

// Multiplies all rows by a strip.
template <bool kFirst>
void MultiplyStrip(const Left& a, int64_t rows, int64_t depth, const float* strip, float* c,
                   int64_t c_row) {
  ForTiles(a, rows, [&](const float* left, int64_t i, int64_t height) HWY_ATTR {
    TileOfRows<kFirst>(static_cast<size_t>(height), depth, left, a.row, a.k, strip, kTileCols,
                       c + i * c_row, c_row);
  });
}

// Computes rows [row, row + rows) and columns [col, col + cols) of the product with freshly packed
// strips, beginning with that of `col`; each is p.k deep.
inline void MultiplyStrips(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                           const float* strips, const ProductScratch& scratch) {
  const int64_t num_strips = (cols + kStripWidth - 1) / kStripWidth;
  const bool in_place = IsSummedInPlace(p);
  float* const out = static_cast<float*>(p.c) + row * p.c_row_stride + col;
  const int64_t width = num_strips * kStripWidth;
  const int64_t block_depth = EvenDepth(p.k, kBlockDepth);
  // Runs once even if there is nothing to add: the result is then zero.
  for (int64_t k = 0; k == 0 || k < p.k; k += block_depth) {
    const int64_t depth = std::min(block_depth, p.k - k);
    const Left left = PrepareLeft(p.a, row, rows, k, depth, scratch.left);
    for (int64_t i = 0; i < num_strips; ++i) {
      const int64_t offset = i * kStripWidth;
      // The last strip may be narrower than the registers: its columns go through the scratch.
      const bool direct = in_place && offset + kStripWidth <= cols;
      float* const c = direct ? out + offset : scratch.result + offset;
      const int64_t c_row = direct ? p.c_row_stride : width;
      if (p.accumulate && !direct && k == 0) {
        for (int64_t r = 0; r < rows; ++r) {
          CopyRow(out + r * p.c_row_stride + offset, cols - offset, c + r * c_row);
        }
      }
      const float* const strip = strips + (i * p.k + k) * kStripWidth;
      if (k == 0 && !p.accumulate) {
        MultiplyStrip<true>(left, rows, depth, strip, c, c_row);
      } else {
        MultiplyStrip<false>(left, rows, depth, strip, c, c_row);
      }
    }
  }
  if (!in_place) return FinishBlock(p, row, rows, col, cols, scratch.result, width);
  if (cols % kStripWidth != 0) {
    const int64_t offset = width - kStripWidth;
    FinishRows<float>(scratch.result + offset, width, rows, cols - offset, nullptr, out + offset,
                      p.c_row_stride);
  }
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
