#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/gemm.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cstring>

#include "common/model/kernels/gemm.h"
#include "common/model/kernels/pack-inl.h"
#include "common/model/kernels/scratch.h"
#include "common/model/kernels/tile-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#ifndef TANDEM_COMMON_MODEL_KERNELS_GEMM_CC_
#define TANDEM_COMMON_MODEL_KERNELS_GEMM_CC_
namespace tandem::model::kernels {

// The working memory of a task; sizes in floats.
struct Scratch {
  float* left;    // LeftScratch()
  float* result;  // rows of the task times its columns, rounded up to whole panels
};

}  // namespace tandem::model::kernels
#endif

// The kernels, for each target. Blocks of A stay in the second-level cache while strips of B pass
// by in the first.
HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kBlockRows = kTileRows * 16;
constexpr int64_t kStripWidth = kTileCols;
constexpr int64_t kPanelWidth = kPanelCols;
// A strip so deep fills most of the first-level cache: 24 KiB.
constexpr int64_t kBlockDepth = std::min<int64_t>(384, 6144 / kStripWidth);
// Rows of a panel that stay in the first-level cache while tiles of A pass each of its strips.
constexpr int64_t kPanelBytesAtOnce = 16384;

int64_t StripWidth() { return kStripWidth; }
int64_t PanelWidth() { return kPanelWidth; }
int64_t BlockRows() { return kBlockRows; }

// k cut into blocks of about the same depth.
int64_t EvenDepth(int64_t k, int64_t most) {
  const int64_t blocks = std::max<int64_t>(1, (k + most - 1) / most);
  const int64_t even = (k + blocks - 1) / blocks;
  return std::clamp<int64_t>((even + 7) / 8 * 8, 1, most);
}

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

// Strips [begin, end) of the columns from first_col on; `to` is where the first strip lies.
void Pack(const ConstMatrix& b, int64_t depth, int64_t first_col, int64_t n, int64_t begin,
          int64_t end, float* to) {
  if (b.type == Element::kBFloat16) {
    return PackStrips<BFloat16>(b, depth, first_col, n, begin, end, to);
  }
  PackStrips<float>(b, depth, first_col, n, begin, end, to);
}

template <typename T>
void PackPanelsOf(const ConstMatrix& b, int64_t depth, int64_t n, int64_t begin, int64_t end,
                  T* to) {
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t col = panel * kPanelWidth;
    PackPanel(static_cast<const T*>(b.data) + col * b.col_stride, b.row_stride, b.col_stride,
              std::min(kPanelWidth, n - col), depth, to + panel * depth * kPanelWidth);
  }
  hwy::FlushStream();
}

// Panels [begin, end) of a packed matrix at `to`.
void PackPanels(const ConstMatrix& b, int64_t depth, int64_t n, int64_t begin, int64_t end,
                void* to) {
  if (b.type == Element::kBFloat16) {
    return PackPanelsOf(b, depth, n, begin, end, static_cast<BFloat16*>(to));
  }
  PackPanelsOf(b, depth, n, begin, end, static_cast<float*>(to));
}

// A block of A as float32: element (i, k) of tile t is at data[t * tile + i * row + k * k].
struct Left {
  const float* data;
  ptrdiff_t tile;
  ptrdiff_t row;
  ptrdiff_t k;
};

// A tile's elements in the order in which they are read, so that beside a panel it stays in the
// first-level cache.
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

// Float32 rows are read where they are; other layouts by way of the buffer.
Left PrepareLeft(const ConstMatrix& a, int64_t row, int64_t rows, int64_t k, int64_t depth,
                 float* buffer) {
  if (a.type == Element::kBFloat16) return ConvertLeft<BFloat16>(a, row, rows, k, depth, buffer);
  if (a.col_stride != 1) return ConvertLeft<float>(a, row, rows, k, depth, buffer);
  const auto stride = static_cast<ptrdiff_t>(a.row_stride);
  return {static_cast<const float*>(a.data) + row * a.row_stride + k,
          static_cast<ptrdiff_t>(kTileRows) * stride, stride, 1};
}

// Calls fn(first row, number of rows) for tiles of a left side. Where its rows follow one another
// at one distance the tiles are of about the same height: a low one would wait for its own sums.
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

// All rows times a strip.
template <bool kFirst>
void MultiplyStrip(const Left& a, int64_t rows, int64_t depth, const float* strip, float* c,
                   int64_t c_row) {
  ForTiles(a, rows, [&](const float* left, int64_t i, int64_t height) HWY_ATTR {
    TileOfRows<kFirst>(static_cast<size_t>(height), depth, left, a.row, a.k, strip, kTileCols,
                       c + i * c_row, c_row);
  });
}

// All rows times `depth` rows of a panel's first `cols` columns; `next` is the block that follows.
template <bool kFirst, typename B>
void MultiplyPanelBlock(const Left& a, int64_t rows, int64_t depth, const B* block, int64_t cols,
                        const B* next, float* c, int64_t c_row) {
  if (rows == 1) {
    // All strips at once are one stream, which the hardware sees coming.
    return Tile<1, kFirst, kPanelStrips>(depth, a.data, a.row, a.k, block, kPanelCols, c, c_row);
  }
  const char* soon = reinterpret_cast<const char*>(next);
  constexpr ptrdiff_t kStripRow = kTileCols * sizeof(B);
  if (rows == 2) {
    for (int64_t j = 0; j < cols; j += 2 * kStripWidth, soon += 2 * depth * kStripRow) {
      Tile<2, kFirst, 2, true>(depth, a.data, a.row, a.k, block + j, kPanelCols, c + j, c_row,
                               soon);
    }
    return;
  }
  for (int64_t j = 0; j < cols; j += kStripWidth, soon += depth * kStripRow) {
    ForTiles(a, rows, [&](const float* left, int64_t i, int64_t height) HWY_ATTR {
      float* const out = c + i * c_row + j;
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

// Rows times rows [first_k, first_k + depth) of panels, each k_size deep: each weight is read once,
// nearly in the order of memory, and widened on its way into the register. c: [rows, cols in whole
// panels], to which it is added unless first_k is where the sums begin.
template <typename B>
void MultiplyPanelsOf(const Left& a, int64_t rows, int64_t first_k, int64_t depth, int64_t k_size,
                      const B* panels, int64_t cols, bool starts, float* c, int64_t c_row) {
  constexpr int64_t kRowBytes = kPanelWidth * static_cast<int64_t>(sizeof(B));
  const int64_t at_once =
      rows == 1 ? std::max<int64_t>(depth, 1) : EvenDepth(depth, kPanelBytesAtOnce / kRowBytes);
  for (int64_t j = 0; j < cols; j += kPanelWidth) {
    const B* const panel = panels + j * k_size + first_k * kPanelWidth;
    const int64_t panel_cols = std::min(kPanelWidth, cols - j);
    const B* const next_panel = j + kPanelWidth < cols ? panel + k_size * kPanelWidth : panel;
    // Once even where there is nothing to add up: the result is then zero.
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
void FinishBlock(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
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

// Rows [row, row + rows) and columns [col, col + cols) of the product with a packed matrix.
// `panels` begin with that of `col`.
void MultiplyPanels(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                    const void* panels, const Scratch& scratch) {
  const int64_t width = (cols + kPanelWidth - 1) / kPanelWidth * kPanelWidth;
  if (p.accumulate) {
    const float* const c = static_cast<const float*>(p.c) + row * p.c_row_stride + col;
    for (int64_t i = 0; i < rows; ++i) {
      CopyRow(c + i * p.c_row_stride, cols, scratch.result + i * width);
    }
  }
  // So many of k that the rows of A fit into their scratch, which a column-major A fills in tiles.
  const int64_t most = p.a.col_stride == 1 ? kBlockRows * kBlockDepth / rows / 8 * 8 : kBlockDepth;
  const int64_t block_depth = EvenDepth(p.k, most);
  for (int64_t k = 0; k == 0 || k < p.k; k += block_depth) {
    const int64_t depth = std::min(block_depth, p.k - k);
    const Left left = PrepareLeft(p.a, row, rows, k, depth, scratch.left);
    const bool starts = k == 0 && !p.accumulate;
    if (p.packed_b->type() == Element::kFloat32) {
      MultiplyPanelsOf(left, rows, k, depth, p.k, static_cast<const float*>(panels), cols, starts,
                       scratch.result, width);
    } else {
      MultiplyPanelsOf(left, rows, k, depth, p.k, static_cast<const BFloat16*>(panels), cols,
                       starts, scratch.result, width);
    }
  }
  FinishBlock(p, row, rows, col, cols, scratch.result, width);
}

// The same with strips that were packed just now; each is p.k deep.
void MultiplyStrips(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                    const float* strips, const Scratch& scratch) {
  const int64_t num_strips = (cols + kStripWidth - 1) / kStripWidth;
  const bool in_place = p.accumulate;
  float* const out = static_cast<float*>(p.c) + row * p.c_row_stride + col;
  const int64_t width = num_strips * kStripWidth;
  const int64_t block_depth = EvenDepth(p.k, kBlockDepth);
  // Once even where there is nothing to add up: the result is then zero.
  for (int64_t k = 0; k == 0 || k < p.k; k += block_depth) {
    const int64_t depth = std::min(block_depth, p.k - k);
    const Left left = PrepareLeft(p.a, row, rows, k, depth, scratch.left);
    for (int64_t i = 0; i < num_strips; ++i) {
      const int64_t offset = i * kStripWidth;
      // The last strip may be narrower than the registers: its columns go by way of the scratch.
      const bool direct = in_place && offset + kStripWidth <= cols;
      float* const c = direct ? out + offset : scratch.result + offset;
      const int64_t c_row = direct ? p.c_row_stride : width;
      if (in_place && !direct && k == 0) {
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

int64_t LeftScratch() { return kBlockRows * kBlockDepth; }

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {
namespace {

HWY_EXPORT(StripWidth);
HWY_EXPORT(PanelWidth);
HWY_EXPORT(BlockRows);
HWY_EXPORT(Pack);
HWY_EXPORT(PackPanels);
HWY_EXPORT(MultiplyPanels);
HWY_EXPORT(MultiplyStrips);
HWY_EXPORT(LeftScratch);

// Elements of B that are packed at once, per call: 16 MiB, which the last-level cache may keep.
constexpr int64_t kPackedElements = int64_t{4} << 20;
// The same where few rows read them, task by task: half of a second-level cache.
constexpr int64_t kPackedElementsOfTask = int64_t{1} << 16;
// Columns of one task; with a block of rows they make the result that stays in the cache.
constexpr int64_t kTaskCols = 512;
// Below so many multiplications a second thread costs more than it brings.
constexpr int64_t kParallelWork = int64_t{1} << 18;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What is the same for all tasks of a product.
struct Grid {
  int64_t strip_width = HWY_DYNAMIC_DISPATCH(StripWidth)();
  int64_t panel_width = HWY_DYNAMIC_DISPATCH(PanelWidth)();
  int64_t block_rows = HWY_DYNAMIC_DISPATCH(BlockRows)();
  int64_t left_size = HWY_DYNAMIC_DISPATCH(LeftScratch)();
  int num_threads = 1;
};

// Columns of a task, a multiple of `width`, when all columns and row blocks are shared out among
// the threads.
int64_t TaskCols(const Grid& grid, int64_t row_blocks, int64_t cols, int64_t most, int64_t width) {
  const int64_t wanted = row_blocks >= 2 * grid.num_threads ? 1 : grid.num_threads;
  return std::min(std::max(most / width * width, width),
                  RoundUp((cols + wanted - 1) / wanted, width));
}

// Memory for a task of `rows` x `cols`, and `more` floats behind it.
Scratch TaskScratch(const Grid& grid, int64_t rows, int64_t cols, int64_t more = 0) {
  Scratch scratch;
  scratch.left = ThreadScratch(grid.left_size + rows * RoundUp(cols, grid.panel_width) + more);
  scratch.result = scratch.left + grid.left_size;
  return scratch;
}

// Calls block(row, rows, col, cols, scratch) for all tasks of a result of `cols` columns.
template <typename Block>
void ForBlocks(const Product& p, const Grid& grid, int64_t cols, int64_t width,
               const ParallelFor& parallel_for, const Block& block) {
  const int64_t row_blocks = (p.m + grid.block_rows - 1) / grid.block_rows;
  const int64_t task_cols = TaskCols(grid, row_blocks, cols, kTaskCols, width);
  const int64_t col_tasks = (cols + task_cols - 1) / task_cols;
  parallel_for(row_blocks * col_tasks, [&](int64_t begin, int64_t end) {
    const Scratch scratch = TaskScratch(grid, grid.block_rows, task_cols);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / col_tasks * grid.block_rows;
      const int64_t col = task % col_tasks * task_cols;
      block(row, std::min(grid.block_rows, p.m - row), col, std::min(task_cols, cols - col),
            scratch);
    }
  });
}

void MultiplyPacked(const Product& p, const Grid& grid, const ParallelFor& parallel_for) {
  const PackedMatrix& b = *p.packed_b;
  const auto panels = [&](int64_t col) {
    return static_cast<const char*>(b.data()) + col * p.k * SizeOf(b.type());
  };
  if (p.m > grid.block_rows) {
    return ForBlocks(
        p, grid, p.n, grid.panel_width, parallel_for,
        [&](int64_t row, int64_t rows, int64_t col, int64_t cols, const Scratch& scratch) {
          HWY_DYNAMIC_DISPATCH(MultiplyPanels)
          (p, row, rows, col, cols, panels(col), scratch);
        });
  }
  // One block of rows: each thread has its share of the panels, in sequence.
  const int64_t at_once = std::max<int64_t>(1, kTaskCols / grid.panel_width);
  parallel_for(b.num_panels(), [&](int64_t begin, int64_t end) {
    const Scratch scratch = TaskScratch(grid, p.m, at_once * grid.panel_width);
    for (int64_t panel = begin; panel < end; panel += at_once) {
      const int64_t col = panel * grid.panel_width;
      const int64_t last = std::min(p.n, std::min(panel + at_once, end) * grid.panel_width);
      HWY_DYNAMIC_DISPATCH(MultiplyPanels)
      (p, 0, p.m, col, last - col, panels(col), scratch);
    }
  });
}

// One block of rows: each task packs the columns that it needs into its own cache.
void MultiplyFewRows(const Product& p, const Grid& grid, const ParallelFor& parallel_for) {
  const int64_t task_cols =
      TaskCols(grid, 1, p.n, std::min(kTaskCols, kPackedElementsOfTask / std::max<int64_t>(p.k, 1)),
               grid.strip_width);
  const int64_t tasks = (p.n + task_cols - 1) / task_cols;
  parallel_for(tasks, [&](int64_t begin, int64_t end) {
    const Scratch scratch = TaskScratch(grid, p.m, task_cols, p.k * task_cols);
    float* const packed = scratch.result + p.m * RoundUp(task_cols, grid.panel_width);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t col = task * task_cols;
      const int64_t cols = std::min(task_cols, p.n - col);
      HWY_DYNAMIC_DISPATCH(Pack)
      (p.b, p.k, col, p.n, 0, (cols + grid.strip_width - 1) / grid.strip_width, packed);
      HWY_DYNAMIC_DISPATCH(MultiplyStrips)(p, 0, p.m, col, cols, packed, scratch);
    }
  });
}

void MultiplyManyRows(const Product& p, const Grid& grid, const ParallelFor& parallel_for) {
  const int64_t width = grid.strip_width;
  const int64_t depth = std::max<int64_t>(p.k, 1);
  const int64_t at_once = std::max(width, kPackedElements / depth / width * width);
  const Buffer packed = AllocateBytes(std::min(at_once, RoundUp(p.n, width)) * p.k * 4);
  float* const strips = static_cast<float*>(packed.get());
  for (int64_t col = 0; col < p.n; col += at_once) {
    const int64_t cols = std::min(at_once, p.n - col);
    parallel_for((cols + width - 1) / width, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(Pack)(p.b, p.k, col, p.n, begin, end, strips);
    });
    ForBlocks(p, grid, cols, width, parallel_for,
              [&](int64_t row, int64_t rows, int64_t begin, int64_t count, const Scratch& scratch) {
                HWY_DYNAMIC_DISPATCH(MultiplyStrips)
                (p, row, rows, col + begin, count, strips + begin * p.k, scratch);
              });
  }
}

void Inline(int64_t count, const RangeBody& body) {
  if (count > 0) body(0, count);
}

}  // namespace

PackedMatrix::PackedMatrix(Element type, int64_t k, int64_t n)
    : type_(type), k_(k), n_(n), owned_(AllocateBytes(size_bytes())), data_(owned_.get()) {}

PackedMatrix::PackedMatrix(Element type, int64_t k, int64_t n, void* memory)
    : type_(type), k_(k), n_(n), data_(memory) {}

PackedMatrix::PackedMatrix(const ConstMatrix& b, int64_t k, int64_t n)
    : PackedMatrix(b.type, k, n) {
  Repack(b, 0, num_panels());
}

int64_t PackedMatrix::panel_columns() { return HWY_DYNAMIC_DISPATCH(PanelWidth)(); }

int64_t PackedMatrix::SizeBytes(Element type, int64_t k, int64_t n) {
  return RoundUp(n, panel_columns()) * k * SizeOf(type);
}

void PackedMatrix::Repack(const ConstMatrix& b, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(PackPanels)(b, k_, n_, begin, end, data_);
}

void Multiply(const Product& p, int num_threads, const ParallelFor& parallel_for) {
  if (p.m == 0 || p.n == 0) return;
  Grid grid;
  grid.num_threads = num_threads;
  const bool small = p.m * p.n * p.k < kParallelWork;
  if (small) grid.num_threads = 1;
  static const ParallelFor kInline = Inline;
  const ParallelFor& loop = small ? kInline : parallel_for;
  if (p.packed_b != nullptr) {
    MultiplyPacked(p, grid, loop);
  } else if (p.m <= grid.block_rows) {
    MultiplyFewRows(p, grid, loop);
  } else {
    MultiplyManyRows(p, grid, loop);
  }
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
