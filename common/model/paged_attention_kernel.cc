#include "common/model/paged_attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/paged_attention_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most as many lanes as a tile of keys has tokens; divides it.
using DF = hn::CappedTag<float, 16>;
constexpr int64_t kTile = 16;
// Keys that go through the softmax together. Part of the result: rows are rescaled between runs.
constexpr int64_t kRun = 128;
// Far below any score, so that masked keys and empty rows need no infinities.
constexpr float kMasked = -3.0e38f;
constexpr float kNoMaximum = -1.0e30f;

HWY_INLINE auto LoadFloats(DF d, const float* from) { return hn::LoadU(d, from); }
HWY_INLINE auto LoadFloats(DF d, const uint16_t* from) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::Rebind<uint32_t, DF> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
}

inline float ToFloat(float x) { return x; }
inline float ToFloat(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}
inline void Store(float x, float* to) { *to = x; }
// Rounds to nearest, ties to even.
inline void Store(float x, uint16_t* to) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  *to = std::isnan(x) ? uint16_t{0x7fc0}
                      : static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// scores[r * kRun + j] = q_r . k_j for the 16 keys of a tile, for kRows rows of q.
template <int kRows, typename T>
HWY_INLINE void TileScores(const float* q, int64_t head_dim, const T* keys, float* scores) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  for (size_t j = 0; j < static_cast<size_t>(kTile); j += 2 * lanes) {
    // With 16 lanes one vector holds the tile; the second one then repeats it and is not stored.
    const size_t second = j + lanes < static_cast<size_t>(kTile) ? j + lanes : j;
    hn::Vec<DF> a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    for (int64_t i = 0; i < head_dim; ++i) {
      const auto k0 = LoadFloats(d, keys + i * kTile + j);
      const auto k1 = LoadFloats(d, keys + i * kTile + second);
      const auto q0 = hn::Set(d, q[i]);
      a0 = hn::MulAdd(q0, k0, a0);
      b0 = hn::MulAdd(q0, k1, b0);
      if constexpr (kRows > 1) {
        const auto q1 = hn::Set(d, q[head_dim + i]);
        a1 = hn::MulAdd(q1, k0, a1);
        b1 = hn::MulAdd(q1, k1, b1);
      }
      if constexpr (kRows > 2) {
        const auto q2 = hn::Set(d, q[2 * head_dim + i]);
        a2 = hn::MulAdd(q2, k0, a2);
        b2 = hn::MulAdd(q2, k1, b2);
      }
      if constexpr (kRows > 3) {
        const auto q3 = hn::Set(d, q[3 * head_dim + i]);
        a3 = hn::MulAdd(q3, k0, a3);
        b3 = hn::MulAdd(q3, k1, b3);
      }
    }
    hn::StoreU(b0, d, scores + second);
    hn::StoreU(a0, d, scores + j);
    if constexpr (kRows > 1) {
      hn::StoreU(b1, d, scores + kRun + second);
      hn::StoreU(a1, d, scores + kRun + j);
    }
    if constexpr (kRows > 2) {
      hn::StoreU(b2, d, scores + 2 * kRun + second);
      hn::StoreU(a2, d, scores + 2 * kRun + j);
    }
    if constexpr (kRows > 3) {
      hn::StoreU(b3, d, scores + 3 * kRun + second);
      hn::StoreU(a3, d, scores + 3 * kRun + j);
    }
  }
}

// acc[r, 0 .. 2 lanes) += sum over n keys of p[r, j] * values[j, ..], for kRows rows.
template <int kRows, typename T>
HWY_INLINE void AddValues(const float* p, int64_t n, const T* values, int64_t padded_head_dim,
                          float* acc) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= padded_head_dim; i += 2 * lanes) {
    hn::Vec<DF> a[kRows], b[kRows];
    for (int r = 0; r < kRows; ++r) {
      a[r] = hn::LoadU(d, acc + r * padded_head_dim + i);
      b[r] = hn::LoadU(d, acc + r * padded_head_dim + i + lanes);
    }
    const T* row = values + i;
    for (int64_t j = 0; j < n; ++j, row += padded_head_dim) {
      const auto v0 = LoadFloats(d, row);
      const auto v1 = LoadFloats(d, row + lanes);
      for (int r = 0; r < kRows; ++r) {
        const auto pr = hn::Set(d, p[r * kRun + j]);
        a[r] = hn::MulAdd(pr, v0, a[r]);
        b[r] = hn::MulAdd(pr, v1, b[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(a[r], d, acc + r * padded_head_dim + i);
      hn::StoreU(b[r], d, acc + r * padded_head_dim + i + lanes);
    }
  }
  for (; i < padded_head_dim; i += lanes) {
    hn::Vec<DF> a[kRows];
    for (int r = 0; r < kRows; ++r) a[r] = hn::LoadU(d, acc + r * padded_head_dim + i);
    for (int64_t j = 0; j < n; ++j) {
      const auto v = LoadFloats(d, values + j * padded_head_dim + i);
      for (int r = 0; r < kRows; ++r) {
        a[r] = hn::MulAdd(hn::Set(d, p[r * kRun + j]), v, a[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) hn::StoreU(a[r], d, acc + r * padded_head_dim + i);
  }
}

// One row of scores of a run becomes probabilities relative to the row's maximum so far. Keys
// outside [first, last) are masked. `n` is a multiple of the tile.
HWY_INLINE void SoftmaxRun(float* scores, int64_t n, int64_t first, int64_t last, float softcap,
                           float* maximum, float* sum, float* acc, int64_t padded_head_dim) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (softcap > 0.0f) {
    const auto cap = hn::Set(d, softcap);
    const auto inverse = hn::Set(d, 1.0f / softcap);
    for (int64_t j = 0; j < n; j += lanes) {
      const auto s = hn::LoadU(d, scores + j);
      hn::StoreU(hn::Mul(cap, hn::Tanh(d, hn::Mul(s, inverse))), d, scores + j);
    }
  }
  for (int64_t j = 0; j < std::min(first, n); ++j) scores[j] = kMasked;
  for (int64_t j = std::max<int64_t>(last, 0); j < n; ++j) scores[j] = kMasked;
  auto top = hn::Set(d, *maximum);
  for (int64_t j = 0; j < n; j += lanes) top = hn::Max(top, hn::LoadU(d, scores + j));
  const float new_maximum = hn::GetLane(hn::MaxOfLanes(d, top));
  if (new_maximum != *maximum) {
    const auto shrink = hn::Exp(d, hn::Set(d, *maximum - new_maximum));
    *sum *= hn::GetLane(shrink);
    for (int64_t i = 0; i < padded_head_dim; i += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, acc + i), shrink), d, acc + i);
    }
    *maximum = new_maximum;
  }
  const auto shift = hn::Set(d, new_maximum);
  auto total = hn::Zero(d);
  for (int64_t j = 0; j < n; j += lanes) {
    const auto p = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + j), shift));
    hn::StoreU(p, d, scores + j);
    total = hn::Add(total, p);
  }
  *sum += hn::GetLane(hn::SumOfLanes(d, total));
}

template <typename T>
class Attender {
 public:
  explicit Attender(const AttendArgs<T>& args) : a_(args) {}

  void Run() {
    const int64_t rows = a_.num_tokens * a_.heads_per_kv_head;
    thread_local std::vector<float> scratch;
    scratch.resize(rows * (a_.head_dim + a_.padded_head_dim + 2) + 4 * kRun);
    q_ = scratch.data();
    acc_ = q_ + rows * a_.head_dim;
    maximum_ = acc_ + rows * a_.padded_head_dim;
    sum_ = maximum_ + rows;
    scores_ = sum_ + rows;
    Start(rows);
    const int64_t end = a_.first_position + a_.num_tokens;  // one past the last key that is seen
    int64_t run = a_.window > 0 ? std::max<int64_t>(0, a_.first_position + 1 - a_.window) : 0;
    for (run = run / kRun * kRun; run < end; run += kRun) {
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
      for (int64_t i = 0; i < a_.head_dim; ++i) q_[r * a_.head_dim + i] = ToFloat(q[i]) * a_.scale;
      // A sink is a key without a value.
      maximum_[r] = a_.sinks != nullptr ? a_.sinks[head] : kNoMaximum;
      sum_[r] = a_.sinks != nullptr ? 1.0f : 0.0f;
    }
    std::fill_n(acc_, rows * a_.padded_head_dim, 0.0f);
  }

  template <int kRows>
  void RunOfRows(int64_t row, int64_t run, int64_t end) {
    // Keys past the last of these rows' positions are of no use to any of them.
    const int64_t last_token = (row + kRows - 1) / a_.heads_per_kv_head;
    const int64_t n = std::min({kRun, end - run, a_.first_position + last_token + 1 - run});
    if (n <= 0) return;
    float* acc = acc_ + row * a_.padded_head_dim;
    for (int64_t j = 0; j < n; j += kTile) {
      const int64_t position = run + j;
      const int64_t within = position % a_.block_size;
      const T* keys = a_.keys + a_.blocks[position / a_.block_size] * a_.key_block_stride +
                      within * a_.head_dim;
      TileScores<kRows>(q_ + row * a_.head_dim, a_.head_dim, keys, scores_ + j);
    }
    const int64_t whole_tiles = (n + kTile - 1) / kTile * kTile;
    for (int r = 0; r < kRows; ++r) {
      const int64_t position = a_.first_position + (row + r) / a_.heads_per_kv_head;
      const int64_t first = a_.window > 0 ? position + 1 - a_.window - run : 0;
      SoftmaxRun(scores_ + r * kRun, whole_tiles, first, position + 1 - run, a_.softcap,
                 &maximum_[row + r], &sum_[row + r], acc + r * a_.padded_head_dim,
                 a_.padded_head_dim);
    }
    for (int64_t j = 0; j < n;) {
      const int64_t position = run + j;
      const int64_t within = position % a_.block_size;
      const int64_t count = std::min(n - j, a_.block_size - within);
      const T* values = a_.values + a_.blocks[position / a_.block_size] * a_.value_block_stride +
                        within * a_.padded_head_dim;
      AddValues<kRows>(scores_ + j, count, values, a_.padded_head_dim, acc);
      j += count;
    }
  }

  void Finish(int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      T* out = a_.out + r / a_.heads_per_kv_head * a_.out_token_stride +
               r % a_.heads_per_kv_head * a_.head_dim;
      const float inverse = 1.0f / sum_[r];
      for (int64_t i = 0; i < a_.head_dim; ++i) {
        Store(acc_[r * a_.padded_head_dim + i] * inverse, out + i);
      }
    }
  }

  const AttendArgs<T>& a_;
  float* q_;        // [rows, head_dim], scaled
  float* acc_;      // [rows, padded_head_dim]
  float* maximum_;  // [rows]
  float* sum_;      // [rows]
  float* scores_;   // [4, kRun]
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
