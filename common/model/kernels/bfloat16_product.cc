#include "common/model/kernels/bfloat16_product.h"

#include <algorithm>
#include <atomic>

#include "common/model/kernels/bfloat16_block.h"
#include "common/model/kernels/bfloat16_tile.h"
#include "common/model/kernels/in_turns.h"
#include "common/model/kernels/round_up.h"
#include "common/model/kernels/scratch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tandem::model::kernels {
namespace {

using bfloat16::kBlockRows;
using bfloat16::kPanelColumns;
using bfloat16::kStepBytes;
using bfloat16::kTileBytes;
using bfloat16::kTileDepth;
using bfloat16::kTileRows;
using bfloat16::Part;
using bfloat16::Tiles;
using bfloat16::Words;

static_assert(kPanelColumns == kBFloat16PanelColumns);
// Limits on a task's packed rows of A: half of the second-level cache, and this many rows.
constexpr int64_t kLeftBytes = int64_t{1} << 19;
constexpr int64_t kTaskRows = 256;
// Up to this many rows, a task packs panels when it reads them; for more, packing them for all
// tasks first pays off.
constexpr int64_t kFewRows = 64;
// Bytes of a right side that are packed at once: the last-level cache may hold them.
constexpr int64_t kPackedBytes = int64_t{16} << 20;
// Below this many multiplications and elements read, a second thread costs more than it saves. Both
// count, because a product of few rows costs what it reads, not what it multiplies.
constexpr int64_t kSharedWork = int64_t{1} << 21;
constexpr int64_t kSharedElements = int64_t{1} << 16;

std::atomic<BFloat16Unit> most_for_test{BFloat16Unit::kTiles};

// Requests the tile registers from the system, which grants them on request (Linux 5.16). The
// permission is the process's, so later threads have it too.
bool AskForTiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

BFloat16Unit FindUnit() {
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bf16")) {
    return BFloat16Unit::kNone;
  }
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24 & 1) != 0 &&
                         (d >> 22 & 1) != 0;  // AMX-TILE, AMX-BF16
  return has_tiles && AskForTiles() ? BFloat16Unit::kTiles : BFloat16Unit::kVectors;
}

TANDEM_VECTORS __m512 LoadResult(const float* from, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, from);
}

TANDEM_VECTORS __m512 LoadResult(const BFloat16* from, __mmask16 mask) {
  return bfloat16::Widened(_mm256_maskz_loadu_epi16(mask, from));
}

TANDEM_VECTORS void StoreResult(__m512 value, float* to, __mmask16 mask) {
  _mm512_mask_storeu_ps(to, mask, value);
}

TANDEM_VECTORS void StoreResult(__m512 value, BFloat16* to, __mmask16 mask) {
  _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(value));
}

// Writes sums [rows, 32] to the result.
template <typename C>
TANDEM_VECTORS void Finish(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                           const float* sums) {
  for (int64_t j = 0; j < cols; j += kTileRows) {
    const auto mask = static_cast<__mmask16>(bfloat16::FirstOf32(std::min(kTileRows, cols - j)));
    const __m512 bias = p.bias == nullptr
                            ? _mm512_setzero_ps()
                            : LoadResult(static_cast<const C*>(p.bias) + col + j, mask);
    for (int64_t i = 0; i < rows; ++i) {
      C* const to = static_cast<C*>(p.c) + (row + i) * p.c_row_stride + col + j;
      __m512 value = _mm512_load_ps(sums + i * kPanelColumns + j);
      if (p.bias != nullptr) value = _mm512_add_ps(value, bias);
      if (p.accumulate) value = _mm512_add_ps(value, LoadResult(to, mask));
      StoreResult(value, to, mask);
    }
  }
}

// Converts matrices of either type to tiles of the left side and of the right side.
template <typename T>
TANDEM_VECTORS void PackLeft(const Product& p, int64_t row, int64_t rows, char* to) {
  const T* const data = static_cast<const T*>(p.a.data) + row * p.a.row_stride;
  constexpr int kParts = sizeof(T) == 4 ? 2 : 1;
  for (int64_t block = 0; block < rows; block += kBlockRows) {
    const int64_t height = std::min(kBlockRows, rows - block);
    const int64_t block_tiles = height > kTileRows ? 2 : 1;
    for (int64_t k = 0; k < p.k; k += kTileDepth) {
      const int64_t depth = std::min(kTileDepth, p.k - k);
      for (int part = 0; part < kParts; ++part) {
        const T* const from = data + block * p.a.row_stride + k * p.a.col_stride;
        Words words, next_words;
        if (p.a.col_stride == 1) {
          for (int64_t tile = 0; tile < block_tiles; ++tile, to += kTileBytes) {
            bfloat16::ReadAlong(from + tile * kTileRows * p.a.row_stride, p.a.row_stride,
                                std::min(kTileRows, height - tile * kTileRows), depth,
                                static_cast<Part>(part), words);
            bfloat16::Store(words, to);
          }
          continue;
        }
        bfloat16::ReadAcross(from, p.a.col_stride, height, depth, static_cast<Part>(part), words,
                             next_words);
        bfloat16::Transpose(words);
        bfloat16::Store(words, to);
        to += kTileBytes;
        if (block_tiles == 1) continue;
        bfloat16::Transpose(next_words);
        bfloat16::Store(next_words, to);
        to += kTileBytes;
      }
    }
  }
}

template <bool kFar>
TANDEM_VECTORS void PackPanel(const ConstMatrix& b, int64_t depth, int64_t col, int64_t cols,
                              char* to) {
  const auto* const data = static_cast<const uint16_t*>(b.data) + col * b.col_stride;
  const auto store = [](const Words& words, char* at) TANDEM_VECTORS {
    if constexpr (kFar) {
      bfloat16::StoreFar(words, at);
    } else {
      bfloat16::Store(words, at);
    }
  };
  for (int64_t k = 0; k < depth; k += kTileDepth, to += kStepBytes) {
    const uint16_t* const from = data + k * b.row_stride;
    const int64_t left = std::min(kTileDepth, depth - k);
    Words words, next_words;
    if (b.row_stride == 1) {
      bfloat16::ReadAlong(from, b.col_stride, cols, left, Part::kNearest, words);
      bfloat16::Transpose(words);
      bfloat16::ReadAlong(from + kTileRows * b.col_stride, b.col_stride, cols - kTileRows, left,
                          Part::kNearest, next_words);
      bfloat16::Transpose(next_words);
    } else {
      bfloat16::ReadAcross(from, b.row_stride, cols, left, Part::kNearest, words, next_words);
    }
    store(words, to);
    store(next_words, to + kTileBytes);
  }
}

// Packs the columns of one tile; `from` is the first column, `to` their first tile.
TANDEM_VECTORS void PackGroup(const uint16_t* from, int64_t depth, char* to) {
  for (int64_t k = 0; k < depth; k += kTileDepth, to += kStepBytes) {
    Words words;
    bfloat16::ReadAlong(from + k, depth, kTileRows, std::min(kTileDepth, depth - k), Part::kNearest,
                        words);
    bfloat16::Transpose(words);
    bfloat16::StoreFar(words, to);
  }
}

// Inverse: unpacks the columns.
TANDEM_VECTORS void UnpackGroup(const char* from, int64_t depth, uint16_t* to) {
  for (int64_t k = 0; k < depth; k += kTileDepth, from += kStepBytes) {
    Words words;
    bfloat16::Load(from, words);
    bfloat16::Transpose(words);
    bfloat16::WriteAlong(words, to + k, depth, std::min(kTileDepth, depth - k));
  }
}

template <bool kFar>
void PackPanels(const ConstMatrix& b, int64_t k, int64_t n, int64_t begin, int64_t end, char* to) {
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t col = panel * kPanelColumns;
    PackPanel<kFar>(b, k, col, std::min(kPanelColumns, n - col),
                    to + panel * BFloat16PanelBytes(k));
  }
}

// Returns the bytes from the first panel to the first tile of a group of columns.
int64_t PlaceOfGroup(int64_t group, int64_t k) {
  constexpr int64_t kGroups = kPanelColumns / kBFloat16GroupColumns;  // of a panel
  return group / kGroups * BFloat16PanelBytes(k) + group % kGroups * kTileBytes;
}

int Parts(const Product& p) { return p.a.type == Element::kFloat32 ? 2 : 1; }

// Bytes of one row of a packed left side.
int64_t LeftRowBytes(const Product& p) { return RoundUp(p.k, kTileDepth) * 2 * Parts(p); }

void PackLeft(const Product& p, int64_t row, int64_t rows, char* to) {
  if (p.a.type == Element::kFloat32) return PackLeft<float>(p, row, rows, to);
  PackLeft<uint16_t>(p, row, rows, to);
}

// Multiplies rows [row, row + rows), packed at `left`, by columns [col, col + cols) of the panels
// that begin at `panels`.
void MultiplyRows(const Product& p, int64_t row, int64_t rows, int64_t col, int64_t cols,
                  const char* left, const char* panels, Tiles& tiles) {
  alignas(64) float sums[kBlockRows * kPanelColumns];
  const bool in_place = p.c_type == Element::kFloat32 && p.bias == nullptr && !p.accumulate;
  bfloat16::Block block;
  block.steps = RoundUp(p.k, kTileDepth) / kTileDepth;
  block.parts = Parts(p);
  for (int64_t j = 0; j < cols; j += kPanelColumns) {
    const int64_t width = std::min(kPanelColumns, cols - j);
    const bool direct = in_place && width == kPanelColumns;
    block.panel = panels + j / kPanelColumns * BFloat16PanelBytes(p.k);
    // Panels outside, rows inside: a panel comes from memory once, for the first block of rows; the
    // others find it in the cache.
    for (int64_t i = 0; i < rows; i += kBlockRows) {
      block.left = left + i * LeftRowBytes(p);
      block.rows = std::min(kBlockRows, rows - i);
      block.first = i == 0;
      block.sums = direct ? static_cast<float*>(p.c) + (row + i) * p.c_row_stride + col + j : sums;
      block.stride_bytes = (direct ? p.c_row_stride : kPanelColumns) * 4;
      bfloat16::Multiply(block, tiles);
      if (direct) continue;
      if (p.c_type == Element::kFloat32) {
        Finish<float>(p, row + i, block.rows, col + j, width, sums);
      } else {
        Finish<BFloat16>(p, row + i, block.rows, col + j, width, sums);
      }
    }
  }
}

char* Scratch(int64_t bytes) { return reinterpret_cast<char*>(ThreadScratch((bytes + 3) / 4)); }

int64_t LeftBytes(const Product& p, int64_t rows) {
  return RoundUp(rows, kTileRows) * LeftRowBytes(p);
}

// Each thread has its share of the panels. Packs panels on demand.
void MultiplyFewRows(const Product& p, int num_threads, const ParallelFor& parallel_for) {
  const int64_t panels = (p.n + kPanelColumns - 1) / kPanelColumns;
  const int64_t left_bytes = LeftBytes(p, p.m);
  const int64_t panel_bytes = BFloat16PanelBytes(p.k);
  InTurnsWith(panels, num_threads, kTurns, parallel_for, [&] {
    char* const left = Scratch(left_bytes + panel_bytes);
    // Every thread packs the few rows for itself, so that none waits for another.
    PackLeft(p, 0, p.m, left);
    return [&, left, tiles = Tiles(CurrentBFloat16Unit() == BFloat16Unit::kTiles)](
               int64_t begin, int64_t end) mutable {
      if (p.packed_b != nullptr) {
        const int64_t col = begin * kPanelColumns;
        return MultiplyRows(p, 0, p.m, col, std::min(p.n, end * kPanelColumns) - col, left,
                            static_cast<const char*>(p.packed_b->data()) + begin * panel_bytes,
                            tiles);
      }
      char* const packed = left + left_bytes;
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t col = panel * kPanelColumns;
        const int64_t cols = std::min(kPanelColumns, p.n - col);
        PackPanel<false>(p.b, p.k, col, cols, packed);
        MultiplyRows(p, 0, p.m, col, cols, left, packed, tiles);
      }
    };
  });
}

// Multiplies columns [col, col + cols), whose panels begin at `panels`: each task takes some rows
// and some columns.
void MultiplyManyRows(const Product& p, int64_t col, int64_t cols, const char* panels,
                      int num_threads, const ParallelFor& parallel_for) {
  const int64_t fit = kLeftBytes / std::max<int64_t>(LeftRowBytes(p), 1) / kBlockRows * kBlockRows;
  const int64_t task_rows = std::clamp<int64_t>(fit, kBlockRows, kTaskRows);
  const int64_t row_tasks = (p.m + task_rows - 1) / task_rows;
  // Tasks that share rows pack them again, so columns are divided only if there are too few row
  // tasks to keep the threads evenly busy.
  const int64_t col_tasks = row_tasks >= 2 * num_threads ? 1 : num_threads;
  const int64_t task_cols = RoundUp((cols + col_tasks - 1) / col_tasks, kPanelColumns);
  InTurnsWith(row_tasks * col_tasks, num_threads, kTurns, parallel_for, [&] {
    char* const left = Scratch(LeftBytes(p, std::min(task_rows, p.m)));
    return [&, left, tiles = Tiles(CurrentBFloat16Unit() == BFloat16Unit::kTiles)](
               int64_t begin, int64_t end) mutable {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t row = task / col_tasks * task_rows;
        const int64_t rows = std::min(task_rows, p.m - row);
        const int64_t first = task % col_tasks * task_cols;
        if (first >= cols) continue;
        PackLeft(p, row, rows, left);
        MultiplyRows(p, row, rows, col + first, std::min(task_cols, cols - first), left,
                     panels + first / kPanelColumns * BFloat16PanelBytes(p.k), tiles);
      }
    };
  });
}

void PackAndMultiply(const Product& p, int num_threads, const ParallelFor& parallel_for) {
  const int64_t panel_bytes = BFloat16PanelBytes(p.k);
  const int64_t panels = (p.n + kPanelColumns - 1) / kPanelColumns;
  const int64_t at_once =
      std::clamp<int64_t>(kPackedBytes / std::max<int64_t>(panel_bytes, 1), 1, panels);
  const Buffer packed = AllocateBytes(at_once * panel_bytes);
  char* const to = static_cast<char*>(packed.get());
  for (int64_t panel = 0; panel < panels; panel += at_once) {
    const int64_t col = panel * kPanelColumns;
    const int64_t cols = std::min(at_once * kPanelColumns, p.n - col);
    ConstMatrix part = p.b;
    part.data = static_cast<const uint16_t*>(p.b.data) + col * p.b.col_stride;
    parallel_for((cols + kPanelColumns - 1) / kPanelColumns, [&](int64_t begin, int64_t end) {
      PackPanels<false>(part, p.k, cols, begin, end, to);
    });
    MultiplyManyRows(p, col, cols, to, num_threads, parallel_for);
  }
}

}  // namespace

BFloat16Unit CurrentBFloat16Unit() {
  static const BFloat16Unit unit = FindUnit();
  // Relaxed: only tests write it, before anything is computed.
  return std::min(unit, most_for_test.load(std::memory_order_relaxed));
}

void LimitBFloat16UnitForTest(BFloat16Unit most) { most_for_test = most; }

bool BFloat16UnitTakes(const Product& p) {
  const Element right = p.packed_b != nullptr ? p.packed_b->type() : p.b.type;
  return right == Element::kBFloat16 && CurrentBFloat16Unit() != BFloat16Unit::kNone;
}

int64_t BFloat16PanelBytes(int64_t k) { return RoundUp(k, kTileDepth) * kPanelColumns * 2; }

void PackBFloat16Panels(const ConstMatrix& b, int64_t k, int64_t n, int64_t begin, int64_t end,
                        void* to) {
  PackPanels<true>(b, k, n, begin, end, static_cast<char*>(to));
  // Non-temporal stores are not ordered by the lock or flag that hands the matrix to another
  // thread; without the fence that thread could read old bytes.
  __builtin_ia32_sfence();
}

void PackBFloat16Groups(const void* from, int64_t k, int64_t begin, int64_t end, void* to) {
  const auto* columns = static_cast<const uint16_t*>(from);
  for (int64_t group = begin; group < end; ++group, columns += kBFloat16GroupColumns * k) {
    PackGroup(columns, k, static_cast<char*>(to) + PlaceOfGroup(group, k));
  }
  // See PackBFloat16Panels().
  __builtin_ia32_sfence();
}

void UnpackBFloat16Groups(const void* from, int64_t k, int64_t begin, int64_t end, void* to) {
  auto* columns = static_cast<uint16_t*>(to);
  for (int64_t group = begin; group < end; ++group, columns += kBFloat16GroupColumns * k) {
    UnpackGroup(static_cast<const char*>(from) + PlaceOfGroup(group, k), k, columns);
  }
}

void MultiplyBFloat16(const Product& p, int num_threads, const ParallelFor& parallel_for) {
  static const ParallelFor kInline = [](int64_t count, const RangeBody& body) { body(0, count); };
  const bool alone =
      num_threads == 1 || (p.m * p.n * p.k < kSharedWork && p.n * p.k < kSharedElements);
  const ParallelFor& loop = alone ? kInline : parallel_for;
  const int threads = alone ? 1 : num_threads;
  if (p.m <= kFewRows) return MultiplyFewRows(p, threads, loop);
  if (p.packed_b == nullptr) return PackAndMultiply(p, threads, loop);
  MultiplyManyRows(p, 0, p.n, static_cast<const char*>(p.packed_b->data()), threads, loop);
}

}  // namespace tandem::model::kernels

#else

namespace tandem::model::kernels {

BFloat16Unit CurrentBFloat16Unit() { return BFloat16Unit::kNone; }
void LimitBFloat16UnitForTest(BFloat16Unit) {}
bool BFloat16UnitTakes(const Product&) { return false; }
int64_t BFloat16PanelBytes(int64_t) { return 0; }
void PackBFloat16Panels(const ConstMatrix&, int64_t, int64_t, int64_t, int64_t, void*) {}
void PackBFloat16Groups(const void*, int64_t, int64_t, int64_t, void*) {}
void UnpackBFloat16Groups(const void*, int64_t, int64_t, int64_t, void*) {}
void MultiplyBFloat16(const Product&, int, const ParallelFor&) {}

}  // namespace tandem::model::kernels

#endif  // defined(__x86_64__)
