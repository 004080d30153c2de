#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/log_probs.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/model/kernels/exp_sum-inl.h"
#include "common/model/kernels/log_probs.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kStep = kLanes;

float MaxOf(const float* x, int64_t size) {
  const Floats d;
  FloatVec most = hn::Set(d, -std::numeric_limits<float>::infinity());
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) most = hn::Max(most, hn::LoadU(d, x + j));
  float result = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; j < size; ++j) result = std::max(result, x[j]);
  return result;
}

void LogProbsRows(const LogProbsForward& args, int64_t begin, int64_t end) {
  const Floats d;
  for (int64_t i = begin; i < end; ++i) {
    const float* const x = args.logits + i * args.vocab;
    const float scale = InverseTemperature(args.temperatures[i]);
    const float most = MaxOf(x, args.vocab);
    const FloatVec scales = hn::Set(d, scale);
    const FloatVec top = hn::Set(d, most);
    // Below this exp() is 0 in float32; an infinite z would make 0 times infinity.
    const FloatVec least = hn::Set(d, -200.0f);
    FloatVec weighted = hn::Zero(d);  // z exp(z), with z = (x - most) * scale
    const double sum = SumExpOf(x, args.vocab, most, scale, nullptr,
                                [&](FloatVec weight, FloatVec logit, int64_t) HWY_ATTR {
                                  const FloatVec z = hn::Mul(hn::Sub(logit, top), scales);
                                  weighted = hn::MulAdd(hn::Max(z, least), weight, weighted);
                                  return weight;
                                });
    const double log_sum = std::log(sum);
    if (args.targets[i] >= 0) {
      args.log_probs[i] = LogProb(x[args.targets[i]], most, scale, sum);
    }
    args.entropy[i] = static_cast<float>(log_sum - Sum(weighted) / sum);
    if (args.log_sum_exp != nullptr) {
      args.log_sum_exp[i] = static_cast<float>(static_cast<double>(most) * scale + log_sum);
    }
  }
}

template <bool kCaps, class D>
HWY_INLINE void TransformAt(D d, const LogitTransform& transform, int64_t j, float* x) {
  auto v = hn::LoadU(d, x + j);
  if (transform.bias != nullptr) v = hn::Add(v, hn::LoadU(d, transform.bias + j));
  v = hn::Mul(v, hn::Set(d, transform.scale));
  if constexpr (kCaps) {
    const auto cap = hn::Set(d, transform.softcap);
    v = hn::Mul(hn::Tanh(d, hn::Div(v, cap)), cap);
  }
  hn::StoreU(v, d, x + j);
}

template <bool kCaps>
void TransformRow(const LogitTransform& transform, int64_t vocab, float* x) {
  int64_t j = 0;
  for (; j + kStep <= vocab; j += kStep) TransformAt<kCaps>(Floats(), transform, j, x);
  for (; j < vocab; ++j) TransformAt<kCaps>(OneFloat(), transform, j, x);
}

void TransformLogitRows(int64_t vocab, const LogitTransform& transform, float* logits,
                        int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (transform.softcap > 0.0f) {
      TransformRow<true>(transform, vocab, logits + i * vocab);
    } else {
      TransformRow<false>(transform, vocab, logits + i * vocab);
    }
  }
}

// The slope of a logit x over the head's product: scale (1 - (x / c)^2).
template <class D>
HWY_INLINE hn::Vec<D> TransformSlope(D d, const LogitTransform& transform, hn::Vec<D> x) {
  const auto scale = hn::Set(d, transform.scale);
  if (transform.softcap <= 0.0f) return scale;
  const auto ratio = hn::Div(x, hn::Set(d, transform.softcap));
  return hn::Mul(hn::NegMulAdd(ratio, ratio, hn::Set(d, 1.0f)), scale);
}

// d logits = ((target - p) g_logprob - p (log p + H) g_entropy) / temperature, without the target's
// own term, which the caller adds.
template <bool kTransformed, class D>
void BackwardAt(D d, float* x, const LogitTransform& transform, float scale, float log_sum_exp,
                float entropy, float grad_log_prob, float grad_entropy) {
  // The bound keeps p log p at 0 for a logit of minus infinity, where it would be 0 times infinity.
  const auto logit = hn::LoadU(d, x);
  const auto log_p =
      hn::Max(hn::MulSub(logit, hn::Set(d, scale), hn::Set(d, log_sum_exp)), hn::Set(d, -200.0f));
  const auto p = hn::Exp(d, log_p);
  const auto entropy_slope = hn::Mul(hn::Add(log_p, hn::Set(d, entropy)), hn::Set(d, grad_entropy));
  const auto slope = hn::Add(hn::Set(d, grad_log_prob), entropy_slope);
  auto grad = hn::Neg(hn::Mul(hn::Mul(p, slope), hn::Set(d, scale)));
  if constexpr (kTransformed) grad = hn::Mul(grad, TransformSlope(d, transform, logit));
  hn::StoreU(grad, d, x);
}

template <bool kTransformed>
void LogProbsBackwardRowsOf(const LogProbsBackward& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    float* const x = args.logits + i * args.vocab;
    const float scale = InverseTemperature(args.temperatures[i]);
    const float log_sum_exp = args.log_sum_exp[i];
    const float entropy = args.entropy[i];
    const float grad = args.grad_log_probs[i];
    const float grad_entropy = args.grad_entropy[i];
    const int64_t target = args.targets[i];
    float own = grad * scale;
    if (kTransformed && target >= 0) {
      const OneFloat d;
      own *= hn::GetLane(TransformSlope(d, args.transform, hn::Set(d, x[target])));
    }
    int64_t j = 0;
    for (; j + kStep <= args.vocab; j += kStep) {
      BackwardAt<kTransformed>(Floats(), x + j, args.transform, scale, log_sum_exp, entropy, grad,
                               grad_entropy);
    }
    for (; j < args.vocab; ++j) {
      BackwardAt<kTransformed>(OneFloat(), x + j, args.transform, scale, log_sum_exp, entropy, grad,
                               grad_entropy);
    }
    if (target >= 0) x[target] += own;
  }
}

void LogProbsBackwardRows(const LogProbsBackward& args, int64_t begin, int64_t end) {
  if (args.transform.scale == 1.0f && args.transform.softcap <= 0.0f) {
    return LogProbsBackwardRowsOf<false>(args, begin, end);
  }
  LogProbsBackwardRowsOf<true>(args, begin, end);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

float InverseTemperature(double temperature) {
  // Keeps the quotient finite.
  return 1.0f / std::max(static_cast<float>(temperature), 1e-30f);
}

float LogProb(float logit, float maximum, float inverse_temperature, double sum) {
  const double below = static_cast<double>(logit) - maximum;
  return static_cast<float>(below * inverse_temperature - std::log(sum));
}

HWY_EXPORT(TransformLogitRows);
HWY_EXPORT(LogProbsRows);
HWY_EXPORT(LogProbsBackwardRows);

void TransformLogitRows(int64_t vocab, const LogitTransform& transform, float* logits,
                        int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(TransformLogitRows)(vocab, transform, logits, begin, end);
}

void LogProbsRows(const LogProbsForward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(LogProbsRows)(args, begin, end);
}

void LogProbsBackwardRows(const LogProbsBackward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(LogProbsBackwardRows)(args, begin, end);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
