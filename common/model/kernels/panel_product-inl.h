// Multiplies by a packed matrix, reading its panels in place.
#if defined(TANDEM_COMMON_MODEL_KERNELS_PANEL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_PANEL_PRODUCT_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_PANEL_PRODUCT_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_PANEL_PRODUCT_INL_H_
#endif

#include <algorithm>

#include "common/model/kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kPanelWidth = kPanelCols;
// Bytes of a panel's rows that stay in the first-level cache while tiles of A pass each of its
// strips.
constexpr int64_t kPanelBytesAtOnce = 16384;
// With many tiles, loading and storing their sums less often, from the second-level cache, is
// faster.
constexpr int64_t kPanelBytesOfManyRows = 65536;
constexpr int64_t kManyRows = 16;

// Multiplies all rows by `depth` rows of a panel's first `cols` columns; `next` is the block that
// follows.
template <bool kFirst, typename B>
void MultiplyPanelBlock(const Left& a, int64_t rows, int64_t depth, const B* block, int64_t cols,
                        const B* next, float* c, int64_t c_row) {
  if (rows == 1) {
    // All strips together are one stream, which the hardware prefetches.
    return Tile<1, kFirst, kPanelStrips>(depth, a.data, a.row, a.k, block, kPanelCols, c, c_row);
  }
  const char* soon = reinterpret_cast<const char*>(next);
  constexpr ptrdiff_t kStripRow = kTileCols * sizeof(B);
  if (rows == 2) {
    // Two strips make the eight sums that hide the latency (tile-inl.h).
    for (int64_t j = 0; j < cols; j += 2 * kStripWidth, soon += 2 * depth * kStripRow) {
      Tile<2, kFirst, 2, true>(depth, a.data, a.row, a.k, block + j, kPanelCols, c + j, c_row,
                               soon);
    }
    return;
  }
  for (int64_t j = 0; j < cols; j += kStripWidth, soon += depth * kStripRow) {
    ForTiles(a, rows, [&](const float* left, int64_t i, int64_t height) HWY_ATTR {
      float* const out = c + i * c_row + j;
      // The first tile waits for this strip's memory, so it also asks for the next block; the
      // others find the strip in the first-level cache.
      if (i == 0) {
        TileOfRows<kFirst, true>(static_cast<size_t>(height), depth, left, a.row, a.k, block + j,
                                 kPanelCols, out, c_row, soon);
      } else {
        TileOfRows<kFirst>(static_cast<size_t>(height), depth, left, a.row, a.k, block + j,
                           kPanelCols, out, c_row);
      }
    });
  }
}

// Multiplies rows by rows [first_k, first_k + depth) of panels, each k_size deep. Reads each weight
// once, nearly in memory order, and widens it when loading the register. c: [rows, cols in whole
// panels]; adds to c unless `starts`.
template <typename B>
void MultiplyPanelsOf(const Left& a, int64_t rows, int64_t first_k, int64_t depth, int64_t k_size,
                      const B* panels, int64_t cols, bool starts, float* c, int64_t c_row) {
  constexpr int64_t kRowBytes = kPanelWidth * static_cast<int64_t>(sizeof(B));
  const int64_t most = rows < kManyRows ? kPanelBytesAtOnce : kPanelBytesOfManyRows;
  const int64_t at_once =
      rows == 1 ? std::max<int64_t>(depth, 1) : EvenDepth(depth, most / kRowBytes);
  for (int64_t j = 0; j < cols; j += kPanelWidth) {
    const B* const panel = panels + j * k_size + first_k * kPanelWidth;
    const int64_t panel_cols = std::min(kPanelWidth, cols - j);
    const B* const next_panel = j + kPanelWidth < cols ? panel + k_size * kPanelWidth : panel;
    // Runs once even if there is nothing to add: the result is then zero.
    for (int64_t k = 0; k == 0 || k < depth; k += at_once) {
      const int64_t rows_of_panel = std::min(at_once, depth - k);
      const Left left{a.data + k * a.k, a.tile, a.row, a.k};
      const B* const block = panel + k * kPanelWidth;
      const B* const next = k + at_once < depth ? block + at_once * kPanelWidth : next_panel;
      if (starts && k == 0) {
        MultiplyPanelBlock<true>(left, rows, rows_of_panel, block, panel_cols, next, c + j, c_row);
      } else {
        MultiplyPanelBlock<false>(left, rows, rows_of_panel, block, panel_cols, next, c + j, c_row);
      }
    }
  }
}

// Computes rows [row, row + rows) and columns [col, col + cols) of the product with a packed
// matrix. `panels` begin with the panel of `col`.
inline void MultiplyPanels(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                           const void* panels, const ProductScratch& scratch) {
  // The last panel may be narrower than the registers: its columns go through the scratch.
  const int64_t in_place = IsSummedInPlace(p) ? cols / kPanelWidth * kPanelWidth : 0;
  const int64_t rest = cols - in_place;
  const int64_t rest_width = (rest + kPanelWidth - 1) / kPanelWidth * kPanelWidth;
  float* const out = in_place > 0 ? static_cast<float*>(p.c) + row * p.c_row_stride + col : nullptr;
  if (p.accumulate && rest > 0) {
    const float* const c = static_cast<const float*>(p.c) + row * p.c_row_stride + col + in_place;
    for (int64_t i = 0; i < rows; ++i) {
      CopyRow(c + i * p.c_row_stride, rest, scratch.result + i * rest_width);
    }
  }
  // Limits k so that the rows of A fit into their scratch, which a column-major A fills in tiles.
  const int64_t most = p.a.col_stride == 1 ? kBlockRows * kBlockDepth / rows / 8 * 8 : kBlockDepth;
  const int64_t block_depth = EvenDepth(p.k, most);
  for (int64_t k = 0; k == 0 || k < p.k; k += block_depth) {
    const int64_t depth = std::min(block_depth, p.k - k);
    const Left left = PrepareLeft(p.a, row, rows, k, depth, scratch.left);
    const bool starts = k == 0 && !p.accumulate;
    const auto multiply = [&](const auto* of_type) HWY_ATTR {
      MultiplyPanelsOf(left, rows, k, depth, p.k, of_type, in_place, starts, out, p.c_row_stride);
      MultiplyPanelsOf(left, rows, k, depth, p.k, of_type + in_place * p.k, rest, starts,
                       scratch.result, rest_width);
    };
    if (p.packed_b->type() == Element::kFloat32) {
      multiply(static_cast<const float*>(panels));
    } else {
      multiply(static_cast<const BFloat16*>(panels));
    }
  }
  if (rest > 0) FinishBlock(p, row, rows, col + in_place, rest, scratch.result, rest_width);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
