#include "common/model/paged_attention_kernel.h"

#include <algorithm>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/paged_attention_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "common/model/kernels/softmax-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Number of lanes: at most the tokens of a tile of keys, and divides it.
using DF = hn::CappedTag<float, 16>;
constexpr int64_t kTile = 16;
// Keys per softmax block. The softmax's registers are no wider than a tile.
namespace shared = kernels::HWY_NAMESPACE;
constexpr int64_t kRun = shared::kKeyBlock;
static_assert(shared::kLanes <= kTile);

HWY_INLINE auto LoadFloats(DF d, const float* from) { return hn::LoadU(d, from); }
HWY_INLINE auto LoadFloats(DF d, const uint16_t* from) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::Rebind<uint32_t, DF> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
}

// Casts to the element types of the other kernels.
HWY_INLINE const float* Elements(const float* from) { return from; }
HWY_INLINE float* Elements(float* to) { return to; }
HWY_INLINE const kernels::BFloat16* Elements(const uint16_t* from) {
  return reinterpret_cast<const kernels::BFloat16*>(from);
}
HWY_INLINE kernels::BFloat16* Elements(uint16_t* to) {
  return reinterpret_cast<kernels::BFloat16*>(to);
}

// to[0, n) = from[0, n) * factor.
template <typename From, typename To>
HWY_INLINE void ScaleTo(const From* from, int64_t n, float factor, To* to) {
  const shared::Floats d;
  const shared::OneFloat one;
  constexpr auto kStep = static_cast<int64_t>(shared::kLanes);
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    shared::StoreFloats(d, hn::Mul(shared::LoadFloats(d, from + i), hn::Set(d, factor)), to + i);
  }
  for (; i < n; ++i) {
    shared::StoreFloats(one, hn::Mul(shared::LoadFloats(one, from + i), hn::Set(one, factor)),
                        to + i);
  }
}

// A tile of keys is one register of 16 lanes, or several registers for its two halves, which are
// read as a pair.
constexpr int64_t kScoreVectors = hn::MaxLanes(DF()) < kTile ? 2 : 1;
// Enough independent sums, with as many again for the second half, to hide the latency.
constexpr int kScoreSums = kScoreVectors == 1 ? 8 : 4;

// scores[r * kRun + t * kTile + j] = q_r . k_j for the 16 keys of each of kTiles tiles, for kRows
// rows of q. Few rows process several tiles at once: too few sums would stall on latency. Meanwhile
// prefetches one tile's bytes at `soon`.
template <int kRows, int kTiles, typename T>
HWY_INLINE void TileScores(const float* q, int64_t head_dim, const T* const* keys,
                           const T* const* soon, float* scores) {
  const DF d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  for (int64_t j = 0; j < kTile; j += kScoreVectors * kLanes) {
    hn::Vec<DF> sums[kTiles][kRows][kScoreVectors];
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kScoreVectors; ++v) sums[t][r][v] = hn::Zero(d);
      }
    }
    for (int64_t i = 0; i < head_dim; ++i) {
#pragma GCC unroll 8
      for (int t = 0; t < kTiles; ++t) {
        // Only in the first half: the second would ask for the same lines again.
        if (j == 0) __builtin_prefetch(soon[t] + i * kTile);
        hn::Vec<DF> key[kScoreVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kScoreVectors; ++v) {
          key[v] = LoadFloats(d, keys[t] + i * kTile + j + v * kLanes);
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const auto qr = hn::Set(d, q[r * head_dim + i]);
#pragma GCC unroll 2
          for (int v = 0; v < kScoreVectors; ++v) {
            sums[t][r][v] = hn::MulAdd(qr, key[v], sums[t][r][v]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kScoreVectors; ++v) {
          hn::StoreU(sums[t][r][v], d, scores + r * kRun + t * kTile + j + v * kLanes);
        }
      }
    }
  }
}

// Keys whose scores RowScores() computes at once, as many as the rows of q: their sums fill the
// registers and hide the latency.
constexpr int kRowKeys = 4;

// scores[r * kRun + j] = q_r . k_j for kTile keys that are rows of `dim` elements, for kRows rows of
// q. Sums over lanes are few beside the products of a long row.
template <int kRows, typename T>
HWY_INLINE void RowScores(const float* q, int64_t dim, const T* keys, float* scores) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const shared::OneFloat one;
  for (int64_t first = 0; first < kTile; first += kRowKeys) {
    const T* const rows = keys + first * dim;
    hn::Vec<DF> sums[kRows][kRowKeys];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int k = 0; k < kRowKeys; ++k) sums[r][k] = hn::Zero(d);
    }
    int64_t i = 0;
    for (; i + lanes <= dim; i += lanes) {
      hn::Vec<DF> key[kRowKeys];
#pragma GCC unroll 4
      for (int k = 0; k < kRowKeys; ++k) key[k] = LoadFloats(d, rows + k * dim + i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const auto qr = hn::LoadU(d, q + r * dim + i);
#pragma GCC unroll 4
        for (int k = 0; k < kRowKeys; ++k) sums[r][k] = hn::MulAdd(qr, key[k], sums[r][k]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int k = 0; k < kRowKeys; ++k) {
        float score = hn::GetLane(hn::SumOfLanes(d, sums[r][k]));
        for (int64_t rest = i; rest < dim; ++rest) {
          score += q[r * dim + rest] *
                   hn::GetLane(shared::LoadFloats(one, Elements(rows + k * dim + rest)));
        }
        scores[r * kRun + first + k] = score;
      }
    }
  }
}

// acc[r, 0 .. kVectors * lanes) += sum over n keys of p[r, j] * values[j, ..], for kRows rows.
template <int kRows, int kVectors, typename T>
HWY_INLINE void AddColumns(const float* p, int64_t n, const T* values, int64_t value_stride,
                           int64_t padded_value_dim, float* acc) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<DF> sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::LoadU(d, acc + r * padded_value_dim + v * lanes);
    }
  }
  for (int64_t j = 0; j < n; ++j, values += value_stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const auto value = LoadFloats(d, values + v * lanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = hn::MulAdd(hn::Set(d, p[r * kRun + j]), value, sums[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], d, acc + r * padded_value_dim + v * lanes);
    }
  }
}

// The same for all columns, in groups of as many sums as hide the latency.
template <int kRows, typename T>
HWY_INLINE void AddValues(const float* p, int64_t n, const T* values, int64_t value_stride,
                          int64_t padded_value_dim, float* acc) {
  constexpr int kVectors = kRows <= 2 ? 8 / kRows : 2;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + kVectors * lanes <= padded_value_dim; i += kVectors * lanes) {
    AddColumns<kRows, kVectors>(p, n, values + i, value_stride, padded_value_dim, acc + i);
  }
  if constexpr (kVectors > 4) {
    for (; i + 4 * lanes <= padded_value_dim; i += 4 * lanes) {
      AddColumns<kRows, 4>(p, n, values + i, value_stride, padded_value_dim, acc + i);
    }
  }
  for (; i < padded_value_dim; i += lanes) {
    AddColumns<kRows, 1>(p, n, values + i, value_stride, padded_value_dim, acc + i);
  }
}

HWY_INLINE void ScaleRow(float* row, int64_t width, float factor) {
  const DF d;
  const auto factors = hn::Set(d, factor);
  for (int64_t i = 0; i < width; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), factors), d, row + i);
  }
}

template <typename T>
class Attender {
 public:
  explicit Attender(const AttendArgs<T>& args) : a_(args) {}

  void Run() {
    const int64_t rows = a_.num_tokens * a_.heads_per_kv_head;
    thread_local std::vector<float> scratch;
    scratch.resize(rows * (a_.head_dim + a_.padded_value_dim + 2) + 4 * kRun +
                   a_.heads_per_kv_head);
    q_ = scratch.data();
    acc_ = q_ + rows * a_.head_dim;
    running_ = reinterpret_cast<shared::Running*>(acc_ + rows * a_.padded_value_dim);
    scores_ = acc_ + rows * (a_.padded_value_dim + 2);
    slopes_ = scores_ + 4 * kRun;
    Start(rows);
    const int64_t end = SeenEnd(a_.num_tokens - 1);  // one past the last visible key
    // Runs outside, rows inside: keys and values come from memory once for all heads of the group.
    // Runs count from position 0, like the trainer's blocks, so that both round alike.
    for (int64_t run = OldestOf(0) / kRun * kRun; run < end; run += kRun) {
      int64_t r = 0;
      for (; r + 4 <= rows; r += 4) RunOfRows<4>(r, run, end);
      if (rows - r == 3) RunOfRows<3>(r, run, end);
      if (rows - r == 2) RunOfRows<2>(r, run, end);
      if (rows - r == 1) RunOfRows<1>(r, run, end);
    }
    Finish(rows);
  }

 private:
  void Start(int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t head = r % a_.heads_per_kv_head;
      const T* q = a_.q + r / a_.heads_per_kv_head * a_.q_token_stride + head * a_.q_head_stride;
      // Scales q instead of the scores, like UnpackQueries() in training: the bits have to agree.
      ScaleTo(Elements(q), a_.head_dim, a_.scale, q_ + r * a_.head_dim);
      running_[r] = shared::InitialOf(a_.sinks, head);
    }
    for (int64_t g = 0; g < a_.heads_per_kv_head; ++g) slopes_[g] = SlopeOf(a_.alibi, g);
    std::fill_n(acc_, rows * a_.padded_value_dim, 0.0f);
  }

  int64_t BlockOf(int64_t position) const {
    return a_.blocks[position / a_.block_size * a_.blocks_stride];
  }
  // Returns the tile of keys that begins at a position; their rows, in a cache with shared values.
  const T* KeysOf(int64_t position) const {
    return a_.keys + BlockOf(position) * a_.key_block_stride +
           position % a_.block_size * a_.head_dim;
  }
  const T* ValuesOf(int64_t position) const {
    return a_.values + BlockOf(position) * a_.value_block_stride +
           position % a_.block_size * a_.value_stride;
  }
  // Returns the first position that row `row` sees.
  int64_t OldestOf(int64_t row) const {
    const int64_t position = a_.first_position + row / a_.heads_per_kv_head;
    return a_.window.OldestSeen(position);
  }

  // Returns the end of the keys that a token sees. It never falls from token to token.
  int64_t SeenEnd(int64_t token) const {
    return a_.seen_ends == nullptr ? a_.first_position + token + 1 : a_.seen_ends[token];
  }

  // Computes the scores of keys [run + j, run + end), kTiles tiles at once; returns when fewer are
  // left.
  template <int kRows, int kTiles>
  HWY_INLINE int64_t ScoreTiles(int64_t row, int64_t run, int64_t j, int64_t end) {
    const T* keys[kTiles];
    const T* values[kTiles];  // prefetched next
    for (; j + kTiles * kTile <= end; j += kTiles * kTile) {
      for (int t = 0; t < kTiles; ++t) {
        keys[t] = KeysOf(run + j + t * kTile);
        values[t] = ValuesOf(run + j + t * kTile);
      }
      TileScores<kRows, kTiles>(q_ + row * a_.head_dim, a_.head_dim, keys, values, scores_ + j);
    }
    return j;
  }

  template <int kRows>
  void RunOfRows(int64_t row, int64_t run, int64_t end) {
    // No row needs keys past those that the last of these rows sees.
    const int64_t last_token = (row + kRows - 1) / a_.heads_per_kv_head;
    const int64_t n = std::min({kRun, end - run, SeenEnd(last_token) - run});
    // Tiles before every row's window have probability 0. They must not be read either, because
    // their blocks may belong to other sequences by now.
    const int64_t skipped = std::max<int64_t>(0, OldestOf(row) - run) / kTile * kTile;
    if (n <= skipped) return;
    float* acc = acc_ + row * a_.padded_value_dim;
    const int64_t whole_tiles = (n + kTile - 1) / kTile * kTile;
    int64_t j = skipped;
    for (; a_.shared && j < whole_tiles; j += kTile) {
      RowScores<kRows>(q_ + row * a_.head_dim, a_.head_dim, KeysOf(run + j), scores_ + j);
    }
    constexpr int kMost = kScoreSums / kRows;
    if constexpr (kMost >= 8) j = ScoreTiles<kRows, 8>(row, run, j, whole_tiles);
    if constexpr (kMost >= 4) j = ScoreTiles<kRows, 4>(row, run, j, whole_tiles);
    if constexpr (kMost >= 2) j = ScoreTiles<kRows, 2>(row, run, j, whole_tiles);
    ScoreTiles<kRows, 1>(row, run, j, whole_tiles);
    for (int r = 0; r < kRows; ++r) {
      const int64_t token = (row + r) / a_.heads_per_kv_head;
      const int64_t position = a_.first_position + token;
      const shared::ScoreRule rule{a_.softcap, slopes_[(row + r) % a_.heads_per_kv_head]};
      if (!rule.IsPlain()) {
        shared::AdjustScores(scores_ + r * kRun, skipped, whole_tiles, rule, run - position);
      }
      const auto visible = shared::VisibleOf(position, SeenEnd(token), run, n, a_.window);
      const float shrunk =
          shared::SoftmaxBlock(scores_ + r * kRun, whole_tiles, visible, running_[row + r]);
      if (shrunk != 1.0f) ScaleRow(acc + r * a_.padded_value_dim, a_.padded_value_dim, shrunk);
    }
    for (j = skipped; j < n;) {
      const int64_t position = run + j;
      const int64_t within = position % a_.block_size;
      const int64_t count = std::min(n - j, a_.block_size - within);
      AddValues<kRows>(scores_ + j, count, ValuesOf(position), a_.value_stride, a_.padded_value_dim,
                       acc);
      j += count;
    }
  }

  void Finish(int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      T* out = a_.out + r / a_.heads_per_kv_head * a_.out_token_stride +
               r % a_.heads_per_kv_head * a_.value_dim;
      ScaleTo(acc_ + r * a_.padded_value_dim, a_.value_dim, 1.0f / running_[r].sum, Elements(out));
    }
  }

  const AttendArgs<T>& a_;
  float* q_;                  // [rows, head_dim], scaled
  float* acc_;                // [rows, padded_value_dim]
  shared::Running* running_;  // [rows]
  float* scores_;             // [4, kRun]
  float* slopes_;             // [heads_per_kv_head]
};

void AttendFloat(const AttendArgs<float>& args) { Attender<float>(args).Run(); }
void AttendBFloat16(const AttendArgs<uint16_t>& args) { Attender<uint16_t>(args).Run(); }

}  // namespace HWY_NAMESPACE
}  // namespace tandem::model
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::model {

HWY_EXPORT(AttendFloat);
HWY_EXPORT(AttendBFloat16);

void Attend(const AttendArgs<float>& args) { HWY_DYNAMIC_DISPATCH(AttendFloat)(args); }
void Attend(const AttendArgs<uint16_t>& args) { HWY_DYNAMIC_DISPATCH(AttendBFloat16)(args); }

}  // namespace tandem::model
#endif
