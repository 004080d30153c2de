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
  float* panel;   // PanelScratch()
  float* result;  // rows of the task times its columns, rounded up to whole panels
};

}  // namespace tandem::model::kernels
#endif

// The kernels, for each target. Blocks of A stay in the second-level cache while panels of B pass
// by in the first.
HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kBlockRows = kTileRows * 16;
// A panel so deep fills most of the first-level cache: 24 KiB.
constexpr int64_t kBlockDepth = std::min<int64_t>(384, 6144 / kTileCols);

int64_t PanelWidth() { return kTileCols; }
int64_t BlockRows() { return kBlockRows; }

template <PackFor kWhen, typename T, typename To>
void PackPanels(const ConstMatrix& b, int64_t depth, int64_t first_col, int64_t n, int64_t begin,
                int64_t end, To* to) {
  const T* const data = static_cast<const T*>(b.data);
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t col = first_col + panel * kTileCols;
    const int64_t cols = std::min<int64_t>(kTileCols, n - col);
    To* const out = to + panel * depth * kTileCols;
    if (b.col_stride == 1) {
      PackRows(data + col, b.row_stride, cols, depth, out);
    } else {
      PackTransposed<kWhen>(data + col * b.col_stride, b.col_stride, cols, depth, out);
    }
  }
}

// Panels [begin, end) of the columns from first_col on; `to` is where the first panel lies.
template <PackFor kWhen>
void PackWhen(const ConstMatrix& b, int64_t depth, int64_t first_col, int64_t n, int64_t begin,
              int64_t end, Element to_type, void* to) {
  if (to_type == Element::kBFloat16) {
    PackPanels<kWhen, BFloat16>(b, depth, first_col, n, begin, end, static_cast<BFloat16*>(to));
  } else if (b.type == Element::kBFloat16) {
    PackPanels<kWhen, BFloat16>(b, depth, first_col, n, begin, end, static_cast<float*>(to));
  } else {
    PackPanels<kWhen, float>(b, depth, first_col, n, begin, end, static_cast<float*>(to));
  }
}

void Pack(const ConstMatrix& b, int64_t depth, int64_t first_col, int64_t n, int64_t begin,
          int64_t end, Element to_type, void* to) {
  PackWhen<PackFor::kNow>(b, depth, first_col, n, begin, end, to_type, to);
}

// The same for panels that are not read soon.
void PackAside(const ConstMatrix& b, int64_t depth, int64_t n, int64_t begin, int64_t end,
               Element to_type, void* to) {
  PackWhen<PackFor::kLater>(b, depth, 0, n, begin, end, to_type, to);
  hwy::FlushStream();
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

template <typename B>
void MultiplyPanel(const Left& a, int64_t rows, int64_t depth, const B* panel, bool first, float* c,
                   int64_t c_row) {
  for (int64_t i = 0; i < rows; i += kTileRows) {
    const size_t tile_rows = static_cast<size_t>(std::min<int64_t>(kTileRows, rows - i));
    const float* const left = a.data + i / static_cast<int64_t>(kTileRows) * a.tile;
    if (first) {
      TileOfRows<true>(tile_rows, depth, left, a.row, a.k, panel, kTileCols, c + i * c_row, c_row);
    } else {
      TileOfRows<false>(tile_rows, depth, left, a.row, a.k, panel, kTileCols, c + i * c_row, c_row);
    }
  }
}

// One or two rows and four or two panels, `deep` elements apart.
template <typename B>
void MultiplyThin(const Left& a, int64_t rows, int64_t depth, const B* panels, int64_t deep,
                  bool first, float* c, int64_t c_row) {
  if (rows == 1) {
    if (first)
      return Tile<1, true, 4>(depth, a.data, a.row, a.k, panels, kTileCols, c, c_row, deep);
    return Tile<1, false, 4>(depth, a.data, a.row, a.k, panels, kTileCols, c, c_row, deep);
  }
  if (first) return Tile<2, true, 2>(depth, a.data, a.row, a.k, panels, kTileCols, c, c_row, deep);
  Tile<2, false, 2>(depth, a.data, a.row, a.k, panels, kTileCols, c, c_row, deep);
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

// Rows [row, row + rows) and columns [col, col + cols) of the product. `panels` are those of the
// task, the first of them at `col`; each is p.k deep.
void MultiplyBlock(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                   Element panel_type, const void* panels, const Scratch& scratch) {
  const int64_t num_panels = (cols + kTileCols - 1) / kTileCols;
  const bool in_place = p.accumulate;
  float* const out = static_cast<float*>(p.c) + row * p.c_row_stride + col;
  const int64_t width = num_panels * kTileCols;
  // Once even where there is nothing to add up: the result is then zero.
  for (int64_t k = 0; k == 0 || k < p.k; k += kBlockDepth) {
    const int64_t depth = std::min(kBlockDepth, p.k - k);
    const Left left = PrepareLeft(p.a, row, rows, k, depth, scratch.left);
    const bool first = k == 0 && !p.accumulate;
    const int64_t thin = rows == 1 ? 4 : 2;  // panels at once, where there are so few rows
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      const int64_t offset = panel * kTileCols;
      const int64_t start = (panel * p.k + k) * kTileCols;
      if (rows <= 2 && !in_place && panel + thin <= num_panels) {
        float* const c = scratch.result + offset;
        if (panel_type == Element::kFloat32) {
          MultiplyThin(left, rows, depth, static_cast<const float*>(panels) + start,
                       p.k * kTileCols, first, c, width);
        } else {
          MultiplyThin(left, rows, depth, static_cast<const BFloat16*>(panels) + start,
                       p.k * kTileCols, first, c, width);
        }
        panel += thin - 1;
        continue;
      }
      // The last panel may be narrower than the registers: its columns go by way of the scratch.
      const bool direct = in_place && offset + static_cast<int64_t>(kTileCols) <= cols;
      float* const c = direct ? out + offset : scratch.result + offset;
      const int64_t c_row = direct ? p.c_row_stride : width;
      if (in_place && !direct && k == 0) {
        for (int64_t i = 0; i < rows; ++i) {
          CopyRow(out + i * p.c_row_stride + offset, cols - offset, c + i * c_row);
        }
      }
      if (panel_type == Element::kFloat32) {
        MultiplyPanel(left, rows, depth, static_cast<const float*>(panels) + start, first, c,
                      c_row);
      } else if (rows <= static_cast<int64_t>(kTileRows)) {
        // Each weight is used once: it is widened on its way into the register.
        MultiplyPanel(left, rows, depth, static_cast<const BFloat16*>(panels) + start, first, c,
                      c_row);
      } else {
        CopyRow(static_cast<const BFloat16*>(panels) + start, depth * kTileCols, scratch.panel);
        MultiplyPanel(left, rows, depth, scratch.panel, first, c, c_row);
      }
    }
  }
  if (in_place) {
    if (cols % kTileCols != 0) {
      const int64_t offset = (num_panels - 1) * kTileCols;
      FinishRows<float>(scratch.result + offset, width, rows, cols - offset, nullptr, out + offset,
                        p.c_row_stride);
    }
  } else if (p.c_type == Element::kBFloat16) {
    FinishRows(scratch.result, width, rows, cols,
               p.bias == nullptr ? nullptr : static_cast<const BFloat16*>(p.bias) + col,
               static_cast<BFloat16*>(p.c) + row * p.c_row_stride + col, p.c_row_stride);
  } else {
    FinishRows(scratch.result, width, rows, cols,
               p.bias == nullptr ? nullptr : static_cast<const float*>(p.bias) + col, out,
               p.c_row_stride);
  }
}

int64_t LeftScratch() { return kBlockRows * kBlockDepth; }
int64_t PanelScratch() { return kBlockDepth * kTileCols; }

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {
namespace {

HWY_EXPORT(PanelWidth);
HWY_EXPORT(BlockRows);
HWY_EXPORT(Pack);
HWY_EXPORT(PackAside);
HWY_EXPORT(MultiplyBlock);
HWY_EXPORT(LeftScratch);
HWY_EXPORT(PanelScratch);

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
  int64_t width = HWY_DYNAMIC_DISPATCH(PanelWidth)();
  int64_t block_rows = HWY_DYNAMIC_DISPATCH(BlockRows)();
  int64_t left_size = HWY_DYNAMIC_DISPATCH(LeftScratch)();
  int64_t panel_size = HWY_DYNAMIC_DISPATCH(PanelScratch)();
  int num_threads = 1;
};

// Columns of a task, when all columns and row blocks are shared out among the threads.
int64_t TaskCols(const Grid& grid, int64_t row_blocks, int64_t cols, int64_t most) {
  const int64_t wanted = row_blocks >= 2 * grid.num_threads ? 1 : grid.num_threads;
  return std::min(std::max(most / grid.width * grid.width, grid.width),
                  RoundUp((cols + wanted - 1) / wanted, grid.width));
}

// Columns [first_col, first_col + cols) of the result; their panels begin at `panels`.
void MultiplyColumns(const Product& p, const Grid& grid, int64_t first_col, int64_t cols,
                     Element panel_type, const void* panels, const ParallelFor& parallel_for) {
  const int64_t row_blocks = (p.m + grid.block_rows - 1) / grid.block_rows;
  const int64_t task_cols = TaskCols(grid, row_blocks, cols, kTaskCols);
  const int64_t col_tasks = (cols + task_cols - 1) / task_cols;
  parallel_for(row_blocks * col_tasks, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    scratch.left = ThreadScratch(grid.left_size + grid.panel_size + grid.block_rows * task_cols);
    scratch.panel = scratch.left + grid.left_size;
    scratch.result = scratch.panel + grid.panel_size;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / col_tasks * grid.block_rows;
      const int64_t col = task % col_tasks * task_cols;
      const char* const task_panels =
          static_cast<const char*>(panels) + col * p.k * SizeOf(panel_type);
      HWY_DYNAMIC_DISPATCH(MultiplyBlock)
      (p, row, std::min(grid.block_rows, p.m - row), first_col + col,
       std::min(task_cols, cols - col), panel_type, task_panels, scratch);
    }
  });
}

// One block of rows: each task packs the columns that it needs into its own cache.
void MultiplyFewRows(const Product& p, const Grid& grid, const ParallelFor& parallel_for) {
  const int64_t task_cols = TaskCols(
      grid, 1, p.n, std::min(kTaskCols, kPackedElementsOfTask / std::max<int64_t>(p.k, 1)));
  const int64_t tasks = (p.n + task_cols - 1) / task_cols;
  parallel_for(tasks, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    scratch.left =
        ThreadScratch(grid.left_size + grid.panel_size + p.m * task_cols + p.k * task_cols);
    scratch.panel = scratch.left + grid.left_size;
    float* const packed = scratch.panel + grid.panel_size;
    scratch.result = packed + p.k * task_cols;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t col = task * task_cols;
      const int64_t cols = std::min(task_cols, p.n - col);
      HWY_DYNAMIC_DISPATCH(Pack)
      (p.b, p.k, col, p.n, 0, (cols + grid.width - 1) / grid.width, Element::kFloat32, packed);
      HWY_DYNAMIC_DISPATCH(MultiplyBlock)
      (p, 0, p.m, col, cols, Element::kFloat32, packed, scratch);
    }
  });
}

void MultiplyManyRows(const Product& p, const Grid& grid, const ParallelFor& parallel_for) {
  const int64_t depth = std::max<int64_t>(p.k, 1);
  const int64_t at_once = std::max(grid.width, kPackedElements / depth / grid.width * grid.width);
  const Buffer packed = AllocateBytes(std::min(at_once, RoundUp(p.n, grid.width)) * p.k * 4);
  for (int64_t col = 0; col < p.n; col += at_once) {
    const int64_t cols = std::min(at_once, p.n - col);
    parallel_for((cols + grid.width - 1) / grid.width, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(Pack)
      (p.b, p.k, col, p.n, begin, end, Element::kFloat32, packed.get());
    });
    MultiplyColumns(p, grid, col, cols, Element::kFloat32, packed.get(), parallel_for);
  }
}

void Inline(int64_t count, const RangeBody& body) {
  if (count > 0) body(0, count);
}

}  // namespace

PackedMatrix::PackedMatrix(Element type, int64_t k, int64_t n)
    : type_(type), k_(k), n_(n), data_(AllocateBytes(size_bytes())) {}

PackedMatrix::PackedMatrix(const ConstMatrix& b, int64_t k, int64_t n)
    : PackedMatrix(b.type, k, n) {
  Repack(b, 0, num_panels());
}

int64_t PackedMatrix::panel_columns() { return HWY_DYNAMIC_DISPATCH(PanelWidth)(); }

int64_t PackedMatrix::size_bytes() const {
  return num_panels() * panel_columns() * k_ * SizeOf(type_);
}

void PackedMatrix::Repack(const ConstMatrix& b, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(PackAside)(b, k_, n_, begin, end, type_, data_.get());
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
    MultiplyColumns(p, grid, 0, p.n, p.packed_b->type(), p.packed_b->data(), loop);
  } else if (p.m <= grid.block_rows) {
    MultiplyFewRows(p, grid, loop);
  } else {
    MultiplyManyRows(p, grid, loop);
  }
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
