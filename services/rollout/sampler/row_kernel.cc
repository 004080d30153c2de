#include "services/rollout/sampler/row_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/rollout/sampler/row_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "common/model/kernels/exp_sum-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::rollout {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

namespace shared = model::kernels::HWY_NAMESPACE;
using DF = shared::Floats;

RowExtremes ExtremesImpl(const float* row, int64_t n) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto high = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto low = hn::Set(d, std::numeric_limits<float>::infinity());
  auto nan = hn::Zero(d);  // all bits set, a NaN itself, in lanes that saw one
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, row + i);
    high = hn::Max(high, x);
    low = hn::Min(low, x);
    // Ne() of two NaN is false on x86.
    nan = hn::Or(nan, hn::VecFromMask(d, hn::Not(hn::Eq(x, x))));
  }
  RowExtremes out{hn::GetLane(hn::MaxOfLanes(d, high)), hn::GetLane(hn::MinOfLanes(d, low))};
  bool any_nan = !hn::AllTrue(d, hn::Eq(nan, nan));
  for (; i < n; ++i) {
    out.maximum = std::max(out.maximum, row[i]);
    out.minimum = std::min(out.minimum, row[i]);
    any_nan = any_nan || std::isnan(row[i]);
  }
  if (any_nan) out.maximum = out.minimum = std::numeric_limits<float>::quiet_NaN();
  return out;
}

double SumExpImpl(const float* row, int64_t n, float maximum, float inverse_temperature,
                  double* block_sums) {
  return shared::SumExpOf(row, n, maximum, inverse_temperature, block_sums,
                          [](hn::Vec<DF> weight, hn::Vec<DF>, int64_t) HWY_ATTR { return weight; });
}

double SumExpKeptImpl(const float* row, int64_t n, float maximum, float inverse_temperature,
                      Candidate last, double* block_sums) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const auto threshold = hn::Set(d, last.logit);
  const auto last_id = hn::Set(di, last.id);
  return shared::SumExpOf(row, n, maximum, inverse_temperature, block_sums,
                          [&](hn::Vec<DF> weight, hn::Vec<DF> x, int64_t first) HWY_ATTR {
                            const auto ids = hn::Iota(di, static_cast<int32_t>(first));
                            const auto tied =
                                hn::And(hn::Eq(x, threshold),
                                        hn::RebindMask(d, hn::Not(hn::Gt(ids, last_id))));
                            // Adds zeros instead of skipping, so that kept weights fall into the
                            // same lanes and blocks as in SumExp().
                            return hn::IfThenElseZero(hn::Or(hn::Gt(x, threshold), tied), weight);
                          });
}

void ExpImpl(const float* row, int64_t n, float maximum, float inverse_temperature,
             float* weights) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto top = hn::Set(d, maximum);
  const auto inverse = hn::Set(d, inverse_temperature);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(shared::ExpWeight(hn::LoadU(d, row + i), top, inverse), d, weights + i);
  }
  if (i < n) {
    HWY_ALIGN float tail[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(shared::ExpWeight(shared::LoadTail(row + i, n - i, maximum), top, inverse), d, tail);
    std::copy_n(tail, n - i, weights + i);
  }
}

int64_t CollectAtLeastImpl(const float* row, int64_t begin, int64_t n, float threshold,
                           Candidate* out, int64_t capacity, int64_t* next) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, threshold);
  int64_t count = 0;
  int64_t i = begin;
  while (i < n) {
    if (i + lanes <= n && hn::AllFalse(d, hn::Ge(hn::LoadU(d, row + i), limit))) {
      i += lanes;
      continue;
    }
    for (const int64_t end = std::min(n, i + lanes); i < end; ++i) {
      if (!(row[i] >= threshold)) continue;
      out[count++] = {row[i], static_cast<int32_t>(i)};
      if (count == capacity) {
        *next = i + 1;
        return count;
      }
    }
  }
  *next = n;
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::rollout
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::rollout {

HWY_EXPORT(ExtremesImpl);
HWY_EXPORT(SumExpImpl);
HWY_EXPORT(SumExpKeptImpl);
HWY_EXPORT(ExpImpl);
HWY_EXPORT(CollectAtLeastImpl);

RowExtremes Extremes(const float* row, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(ExtremesImpl)(row, n);
}

double SumExp(const float* row, int64_t n, float maximum, float inverse_temperature,
              double* block_sums) {
  return HWY_DYNAMIC_DISPATCH(SumExpImpl)(row, n, maximum, inverse_temperature, block_sums);
}

double SumExpKept(const float* row, int64_t n, float maximum, float inverse_temperature,
                  Candidate last, double* block_sums) {
  return HWY_DYNAMIC_DISPATCH(SumExpKeptImpl)(row, n, maximum, inverse_temperature, last,
                                              block_sums);
}

void Exp(const float* row, int64_t n, float maximum, float inverse_temperature, float* weights) {
  HWY_DYNAMIC_DISPATCH(ExpImpl)(row, n, maximum, inverse_temperature, weights);
}

int64_t CollectAtLeast(const float* row, int64_t begin, int64_t n, float threshold, Candidate* out,
                       int64_t capacity, int64_t* next) {
  return HWY_DYNAMIC_DISPATCH(CollectAtLeastImpl)(row, begin, n, threshold, out, capacity, next);
}

}  // namespace tandem::rollout
#endif
