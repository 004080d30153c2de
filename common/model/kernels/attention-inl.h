// Shared by attention's forward and backward kernels: blocks of queries, keys in panels, and the
// rows of scores between them.
#if defined(TANDEM_COMMON_MODEL_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_ATTENTION_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_ATTENTION_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_ATTENTION_INL_H_
#endif

#include <algorithm>

#include "common/model/kernels/attention.h"
#include "common/model/kernels/attention_tasks.h"
#include "common/model/kernels/pack-inl.h"
#include "common/model/kernels/round_up.h"
#include "common/model/kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kWidth = kTileCols;
static_assert(kKeyBlock % kWidth == 0);
// Approximate rows of a block of queries: whole tiles, few enough that little work lies above the
// diagonal. 48 is a multiple of every tile height (8, 6 and 4).
constexpr int64_t kQueryRows = 48;

// The sizes of one task.
struct Extent {
  int64_t first;         // row of its first token, if all its tokens were contiguous
  int64_t prefix;        // leading tokens stored elsewhere
  int64_t prefix_first;  // row of the first of them
  int64_t length;        // tokens of the sequence
  int64_t padded;        // length rounded up to whole panels
  int64_t group;         // query heads of the key-value head
  int64_t dim;           // of q and k
  int64_t width;         // dim rounded up to whole panels
  int64_t v_dim;         // of v and the result
  int64_t v_width;       // v_dim rounded up to whole panels
  int64_t block_tokens;  // of a block of queries
};

inline Extent ExtentOf(const AttentionShape& shape, int64_t sequence) {
  Extent e;
  e.prefix = PrefixLength(shape, sequence);
  e.prefix_first = e.prefix > 0 ? shape.prefixes[2 * sequence] : 0;
  e.first = shape.cu_seqlens[sequence] - e.prefix;
  e.length = shape.cu_seqlens[sequence + 1] - e.first;
  e.padded = RoundUp(e.length, kWidth);
  e.group = shape.num_heads / shape.num_kv_heads;
  e.dim = shape.head_dim;
  e.width = RoundUp(e.dim, kWidth);
  e.v_dim = shape.v_head_dim;
  e.v_width = RoundUp(e.v_dim, kWidth);
  // All heads of the group share a block: a panel of keys that is in the cache serves them all.
  e.block_tokens = std::max<int64_t>(1, kQueryRows / e.group);
  return e;
}

// Returns the row of the batch that holds the sequence's token `t`.
inline int64_t RowOf(const Extent& e, int64_t t) {
  return t < e.prefix ? e.prefix_first + t : e.first + t;
}

// Returns the end of the keys that token `t` sees, one of the sequence's own.
inline int64_t SeenEnd(const AttentionShape& shape, const Extent& e, int64_t t) {
  if (!shape.causal) return e.length;
  return shape.seen_ends == nullptr ? t + 1 : shape.seen_ends[e.first + t];
}

// Returns the end of the keys that the queries before `end` see, of which there are some.
inline int64_t KeysOf(const AttentionShape& shape, const Extent& e, int64_t end) {
  return SeenEnd(shape, e, end - 1);
}

// The keys of a block of `num_keys` (from `key` on) that token `t` sees.
inline Visible VisibleTo(const AttentionShape& shape, const Extent& e, int64_t t, int64_t key,
                         int64_t num_keys) {
  return VisibleOf(t, SeenEnd(shape, e, t), key, num_keys, shape.window);
}

// Copies rows of a sequence's k or v, of `dim` elements: to[t * width + j], with zeros beyond dim.
// `from` is row 0 of the batch.
template <typename T>
void UnpackRows(const T* from, int64_t stride, const Extent& e, int64_t dim, int64_t width,
                float* to) {
  for (int64_t t = 0; t < e.length; ++t) {
    CopyRow(from + RowOf(e, t) * stride, dim, to + t * width);
    std::fill(to + t * width + dim, to + (t + 1) * width, 0.0f);
  }
}

// The same transposed, in panels of kWidth tokens: to[panel][j][token].
template <typename T>
void UnpackTransposed(const T* from, int64_t stride, const Extent& e, int64_t dim, float* to) {
  for (int64_t t = 0; t < e.length; t += kWidth) {
    const int64_t end = std::min(t + kWidth, e.length);
    // Copies contiguous rows at once: all, unless the prefix ends within the panel.
    const int64_t run = t < e.prefix ? std::min(end, e.prefix) : end;
    float* const panel = to + t * dim;
    PackTransposed(from + RowOf(e, t) * stride, stride, run - t, dim, panel);
    for (int64_t j = run; j < end; ++j) {
      const T* const row = from + RowOf(e, j) * stride;
      for (int64_t i = 0; i < dim; ++i) panel[i * kWidth + j - t] = ToFloat(row[i]);
    }
  }
}

// Copies the query heads, of `dim` elements, of tokens [token, token + count) times `scale`: row
// (t * group + g) holds head g. With `width` >= dim, writes zeros beyond dim.
template <typename T>
void UnpackQueries(const T* from, int64_t stride, int64_t head, int64_t token, int64_t count,
                   const Extent& e, float scale, int64_t dim, int64_t width, float* to) {
  const Floats d;
  const FloatVec scales = hn::Set(d, scale);
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t g = 0; g < e.group; ++g) {
      const T* const row = from + (e.first + token + t) * stride + (head + g) * dim;
      float* const out = to + (t * e.group + g) * width;
      int64_t j = 0;
      for (; j + static_cast<int64_t>(kLanes) <= dim; j += kLanes) {
        hn::StoreU(hn::Mul(LoadFloats(d, row + j), scales), d, out + j);
      }
      for (; j < dim; ++j) out[j] = ToFloat(row[j]) * scale;
      for (; j < width; ++j) out[j] = 0.0f;
    }
  }
}

// c [rows, cols] = a [rows, depth] times panels of kWidth columns, each depth x kWidth. Panels
// outside, rows inside: a panel, 16 KiB or less for a head_dim of 128, stays in the first-level
// cache while all tiles of rows pass over it.
inline void MultiplyPanels(const float* a, int64_t rows, int64_t depth, const float* panels,
                           int64_t cols, float* c, int64_t c_row) {
  for (int64_t j = 0; j < cols; j += kWidth) {
    for (int64_t i = 0; i < rows; i += kTileRows) {
      TileOfRows<true>(std::min<int64_t>(kTileRows, rows - i), depth, a + i * depth, depth, 1,
                       panels + j * depth, kWidth, c + i * c_row + j, c_row);
    }
  }
}

// c [rows, width] (+)= a [rows, depth] times b [depth, width], row-major; element (i, k) of a at
// a[i * a_row + k * a_k].
template <bool kFirst>
void MultiplyRows(const float* a, ptrdiff_t a_row, ptrdiff_t a_k, int64_t rows, int64_t depth,
                  const float* b, int64_t width, float* c) {
  for (int64_t j = 0; j < width; j += kWidth) {
    for (int64_t i = 0; i < rows; i += kTileRows) {
      TileOfRows<kFirst>(std::min<int64_t>(kTileRows, rows - i), depth, a + i * a_row, a_row, a_k,
                         b + j, width, c + i * width + j, width);
    }
  }
}

// Returns a mask of the lanes from `begin` to `end`, for the register that starts at column `j`.
HWY_INLINE hn::Mask<Floats> LanesBetween(int64_t j, int64_t begin, int64_t end) {
  const Floats d;
  const int64_t lanes = kLanes;
  const auto upper = hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(end - j, 0, lanes)));
  const auto lower = hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(begin - j, 0, lanes)));
  return hn::AndNot(lower, upper);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
