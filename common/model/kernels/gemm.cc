#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/gemm.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>

#include "common/model/kernels/bfloat16_product.h"
#include "common/model/kernels/gemm.h"
#include "common/model/kernels/in_turns.h"
#include "common/model/kernels/panel_product-inl.h"
#include "common/model/kernels/round_up.h"
#include "common/model/kernels/scratch.h"
#include "common/model/kernels/strip_product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

int64_t StripWidth() { return kStripWidth; }
int64_t BlockRows() { return kBlockRows; }
int64_t LeftScratch() { return kLeftScratch; }

void PackStripsFor(const ConstMatrix& b, int64_t depth, int64_t first_col, int64_t n, int64_t begin,
                   int64_t end, float* to) {
  PackStrips(b, depth, first_col, n, begin, end, to);
}

void MultiplyPanelsFor(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                       const void* panels, const ProductScratch& scratch) {
  MultiplyPanels(p, row, rows, col, cols, panels, scratch);
}

void MultiplyStripsFor(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                       const float* strips, const ProductScratch& scratch) {
  MultiplyStrips(p, row, rows, col, cols, strips, scratch);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {
namespace {

HWY_EXPORT(StripWidth);
HWY_EXPORT(BlockRows);
HWY_EXPORT(PackStripsFor);
HWY_EXPORT(MultiplyPanelsFor);
HWY_EXPORT(MultiplyStripsFor);
HWY_EXPORT(LeftScratch);

// Elements of B that one call packs at once: 16 MiB, which the last-level cache may hold.
constexpr int64_t kPackedElements = int64_t{4} << 20;
// The same if few rows read them, per task: half of a second-level cache.
constexpr int64_t kPackedElementsOfTask = int64_t{1} << 16;
// Columns of one task; times a block of rows, the result that stays in the cache.
constexpr int64_t kTaskCols = 512;
// Below this many multiplications a second thread costs more than it saves.
constexpr int64_t kParallelWork = int64_t{1} << 18;

// Values that all tasks of a product share.
struct Grid {
  int64_t strip_width = HWY_DYNAMIC_DISPATCH(StripWidth)();
  int64_t panel_width = PackedMatrix::panel_columns(Element::kFloat32);
  int64_t block_rows = HWY_DYNAMIC_DISPATCH(BlockRows)();
  int64_t left_size = HWY_DYNAMIC_DISPATCH(LeftScratch)();
  int num_threads = 1;
};

// Returns the columns of a task, a multiple of `width`, when all columns and row blocks are divided
// among the threads.
int64_t TaskCols(const Grid& grid, int64_t row_blocks, int64_t cols, int64_t most, int64_t width) {
  // With two row blocks per thread the threads are evenly busy without dividing the columns.
  const int64_t wanted = row_blocks >= 2 * grid.num_threads ? 1 : grid.num_threads;
  return std::min(std::max(most / width * width, width),
                  RoundUp((cols + wanted - 1) / wanted, width));
}

// Memory for a task of `rows` x `cols`, and `more` floats behind it.
ProductScratch TaskScratch(const Grid& grid, int64_t rows, int64_t cols, int64_t more = 0) {
  ProductScratch scratch;
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
  InTurns(row_blocks * col_tasks, grid.num_threads, parallel_for, [&](int64_t begin, int64_t end) {
    const ProductScratch scratch = TaskScratch(grid, grid.block_rows, task_cols);
    for (int64_t task = begin; task < end; ++task) {
      // Columns vary fastest: a thread's next task finds its rows of A in the cache.
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
        [&](int64_t row, int64_t rows, int64_t col, int64_t cols, const ProductScratch& scratch) {
          HWY_DYNAMIC_DISPATCH(MultiplyPanelsFor)
          (p, row, rows, col, cols, panels(col), scratch);
        });
  }
  const int64_t at_once = std::max<int64_t>(1, kTaskCols / grid.panel_width);
  // For one block of rows each thread reads its share of the panels, in sequence.
  parallel_for(b.num_panels(), [&](int64_t begin, int64_t end) {
    const ProductScratch scratch = TaskScratch(grid, p.m, at_once * grid.panel_width);
    for (int64_t panel = begin; panel < end; panel += at_once) {
      const int64_t col = panel * grid.panel_width;
      const int64_t last = std::min(p.n, std::min(panel + at_once, end) * grid.panel_width);
      HWY_DYNAMIC_DISPATCH(MultiplyPanelsFor)
      (p, 0, p.m, col, last - col, panels(col), scratch);
    }
  });
}

// Multiplies one block of rows; each task packs its columns into its own cache.
void MultiplyFewRows(const Product& p, const Grid& grid, const ParallelFor& parallel_for) {
  const int64_t task_cols =
      TaskCols(grid, 1, p.n, std::min(kTaskCols, kPackedElementsOfTask / std::max<int64_t>(p.k, 1)),
               grid.strip_width);
  const int64_t tasks = (p.n + task_cols - 1) / task_cols;
  parallel_for(tasks, [&](int64_t begin, int64_t end) {
    const ProductScratch scratch = TaskScratch(grid, p.m, task_cols, p.k * task_cols);
    float* const packed = scratch.result + p.m * RoundUp(task_cols, grid.panel_width);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t col = task * task_cols;
      const int64_t cols = std::min(task_cols, p.n - col);
      HWY_DYNAMIC_DISPATCH(PackStripsFor)
      (p.b, p.k, col, p.n, 0, (cols + grid.strip_width - 1) / grid.strip_width, packed);
      HWY_DYNAMIC_DISPATCH(MultiplyStripsFor)(p, 0, p.m, col, cols, packed, scratch);
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
      HWY_DYNAMIC_DISPATCH(PackStripsFor)(p.b, p.k, col, p.n, begin, end, strips);
    });
    ForBlocks(p, grid, cols, width, parallel_for,
              [&](int64_t row, int64_t rows, int64_t begin, int64_t count,
                  const ProductScratch& scratch) {
                HWY_DYNAMIC_DISPATCH(MultiplyStripsFor)
                (p, row, rows, col + begin, count, strips + begin * p.k, scratch);
              });
  }
}

void Inline(int64_t count, const RangeBody& body) {
  if (count > 0) body(0, count);
}

}  // namespace

void Multiply(const Product& p, int num_threads, const ParallelFor& parallel_for) {
  if (p.m == 0 || p.n == 0) return;
  if (BFloat16UnitTakes(p)) return MultiplyBFloat16(p, num_threads, parallel_for);
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
