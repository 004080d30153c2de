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
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Keys per softmax block. It affects the result's bits, because sums are rescaled from one block to
// the next. A multiple of every register's and panel's width.
constexpr int64_t kKeyBlock = 128;

// The keys of a block of `keys` (from `key` on) that token `t` sees: [begin, end) within the block.
struct Visible {
  int64_t begin;
  int64_t end;
};
inline Visible VisibleOf(int64_t t, int64_t key, int64_t keys, int64_t window) {
  const int64_t oldest = window > 0 ? t + 1 - window : 0;
  return {std::clamp<int64_t>(oldest - key, 0, keys), std::clamp<int64_t>(t + 1 - key, 0, keys)};
}

// A running softmax over a row of scores: `most` is their maximum and `sum` the sum of exp(score -
// most).
struct Running {
  float most;
  float sum;
};
// Initial state: lower than every score; finite, so that differences are numbers.
constexpr Running kNothingSeen = {-1e30f, 0.0f};

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
