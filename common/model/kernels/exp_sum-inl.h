// The sum of a row's exponentials, the basis of log-probs and sampling. The trainer's head and the
// rollout's sampler share it, so a token's log-prob has the same bits in both.
#if defined(TANDEM_COMMON_MODEL_KERNELS_EXP_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_EXP_SUM_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_EXP_SUM_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_EXP_SUM_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "common/model/kernels/log_probs.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// exp((x - maximum) * inverse_temperature). All code computes exponentials with this function, for
// whole registers and tails.
HWY_INLINE FloatVec ExpWeight(FloatVec x, FloatVec maximum, FloatVec inverse_temperature) {
  return hn::Exp(Floats(), hn::Mul(hn::Sub(x, maximum), inverse_temperature));
}

// Loads the last `count` entries of a row, with `filler` beyond them.
HWY_INLINE FloatVec LoadTail(const float* from, int64_t count, float filler) {
  const Floats d;
  HWY_ALIGN float lanes[kLanes];
  for (int64_t i = 0; i < static_cast<int64_t>(kLanes); ++i) {
    lanes[i] = i < count ? from[i] : filler;
  }
  return hn::Load(d, lanes);
}

// Returns the sum over i of kept(ExpWeight(row[i]), row[i], i), one register at a time; writes the
// sum of each kSumBlock entries to block_sums, unless null.
template <typename Kept>
HWY_INLINE double SumExpOf(const float* row, int64_t n, float maximum, float inverse_temperature,
                           double* block_sums, const Kept& kept) {
  const Floats d;
  const int64_t lanes = kLanes;
  const FloatVec top = hn::Set(d, maximum);
  const FloatVec inverse = hn::Set(d, inverse_temperature);
  double total = 0.0;
  for (int64_t block = 0; block < n; block += kSumBlock) {
    const int64_t end = std::min(n, block + kSumBlock);
    FloatVec sum = hn::Zero(d);
    int64_t i = block;
    for (; i + lanes <= end; i += lanes) {
      const FloatVec x = hn::LoadU(d, row + i);
      sum = hn::Add(sum, kept(ExpWeight(x, top, inverse), x, i));
    }
    if (i < end) {
      // The filler's exponential is 0, so the tail goes through the same lanes as a whole register.
      const FloatVec x = LoadTail(row + i, end - i, -std::numeric_limits<float>::infinity());
      sum = hn::Add(sum, kept(ExpWeight(x, top, inverse), x, i));
    }
    const double block_sum = Sum(sum);
    if (block_sums != nullptr) block_sums[block / kSumBlock] = block_sum;
    total += block_sum;
  }
  return total;
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
