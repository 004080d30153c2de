// The softmax of attention, shared by training and generation. Keys are processed in blocks of
// kKeyBlock, counted from the sequence's start, and each block goes through SoftmaxBlock(). Because
// scores and weighted sums are chains of fused multiply-adds (tile-inl.h), a row's result depends
// only on the row and its keys: not on its block of queries, on how a prompt was chunked, nor on
// where a cache stores the keys.
#if defined(TANDEM_COMMON_MODEL_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_SOFTMAX_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_SOFTMAX_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_SOFTMAX_INL_H_
#endif

#include <algorithm>

#include "common/model/kernels/vector-inl.h"
#include "common/model/kernels/window.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Keys per softmax block. It affects the result's bits, because sums are rescaled from one block to
// the next. A multiple of every register's and panel's width.
constexpr int64_t kKeyBlock = 128;

// The keys of a block of `keys` (from `key` on) that token `t` sees, which are those before `seen_end`:
// [begin, end) within the block.
struct Visible {
  int64_t begin;
  int64_t end;
};
inline Visible VisibleOf(int64_t t, int64_t seen_end, int64_t key, int64_t keys,
                         const Window& window) {
  return {std::clamp<int64_t>(window.OldestSeen(t) - key, 0, keys),
          std::clamp<int64_t>(seen_end - key, 0, keys)};
}

// What happens to a row's scores before the softmax, besides their scale.
struct ScoreRule {
  float softcap = 0.0f;  // c: scores become c tanh(score / c); 0: they stay
  float slope = 0.0f;    // times the key's position relative to the query's, added; ALiBi

  bool IsPlain() const { return softcap == 0.0f && slope == 0.0f; }
};

// softcap * tanh(score / softcap); sets `slope` to its derivative.
HWY_INLINE FloatVec Capped(FloatVec score, float softcap, FloatVec& slope) {
  const Floats d;
  const FloatVec t = hn::Tanh(d, hn::Mul(score, hn::Set(d, 1.0f / softcap)));
  slope = hn::NegMulAdd(t, t, hn::Set(d, 1.0f));
  return hn::Mul(t, hn::Set(d, softcap));
}

// Adds ALiBi's bias to the scores of a register's keys, the first of which is `distance` tokens
// after the query.
HWY_INLINE FloatVec Biased(FloatVec score, float slope, int64_t distance) {
  const Floats d;
  return hn::MulAdd(hn::Set(d, slope), hn::Iota(d, static_cast<float>(distance)), score);
}

// Applies the rule to scores [begin, end), both multiples of kLanes. `distance`: from the query to
// the block's first key, in tokens. An element's result does not depend on its place in a register.
inline void AdjustScores(float* scores, int64_t begin, int64_t end, const ScoreRule& rule,
                         int64_t distance) {
  const Floats d;
  FloatVec unused;
  for (int64_t j = begin; j < end; j += kLanes) {
    FloatVec score = hn::LoadU(d, scores + j);
    if (rule.softcap > 0.0f) score = Capped(score, rule.softcap, unused);
    if (rule.slope != 0.0f) score = Biased(score, rule.slope, distance + j);
    hn::StoreU(score, d, scores + j);
  }
}

// A running softmax over a row of scores: `most` is their maximum and `sum` the sum of exp(score -
// most).
struct Running {
  float most;
  float sum;
};
// Initial state: lower than every score; finite, so that differences are numbers.
constexpr Running kNothingSeen = {-1e30f, 0.0f};
// Initial state with a sink: a key without a value. `sinks`: of the group's heads, or null.
inline Running InitialOf(const float* sinks, int64_t head) {
  return sinks == nullptr ? kNothingSeen : Running{sinks[head], 1.0f};
}

// Replaces a block's scores [0, cols) by exp(score - most), zero if the key is not visible; returns
// the factor by which the caller must scale its earlier sums. `cols` is a multiple of kLanes.
inline float SoftmaxBlock(float* scores, int64_t cols, Visible visible, Running& running) {
  constexpr float kHidden = -3e38f;  // exp() of its distance to any score is 0
  const Floats d;
  const int64_t lanes = kLanes;
  if (visible.begin >= visible.end) {
    std::fill(scores, scores + cols, 0.0f);
    return 1.0f;
  }
  const int64_t first = visible.begin / lanes * lanes;
  const int64_t last = (visible.end + lanes - 1) / lanes * lanes;
  std::fill(scores + first, scores + visible.begin, kHidden);
  std::fill(scores + visible.end, scores + last, kHidden);
  FloatVec most = hn::Set(d, running.most);
  for (int64_t j = first; j < last; j += lanes) most = hn::Max(most, hn::LoadU(d, scores + j));
  const float new_most = hn::GetLane(hn::MaxOfLanes(d, most));
  const FloatVec offset = hn::Set(d, new_most);
  FloatVec sums = hn::Zero(d);
  for (int64_t j = first; j < last; j += lanes) {
    const FloatVec e = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + j), offset));
    sums = hn::Add(sums, e);
    hn::StoreU(e, d, scores + j);
  }
  std::fill(scores, scores + first, 0.0f);
  std::fill(scores + last, scores + cols, 0.0f);
  float shrunk = 1.0f;
  if (new_most != running.most) {
    // The exponential of the scores: a C library's could differ in its last bit.
    shrunk = hn::GetLane(hn::Exp(d, hn::Set(d, running.most - new_most)));
  }
  running.sum = running.sum * shrunk + Sum(sums);
  running.most = new_most;
  return shrunk;
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
