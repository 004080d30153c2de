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

// d logits = ((target - p) g_logprob - p (log p + H) g_entropy) / temperature, without the target's
// own term, which the caller adds.
template <class D>
void BackwardAt(D d, float* x, float scale, float log_sum_exp, float entropy, float grad_log_prob,
                float grad_entropy) {
  // The bound keeps p log p at 0 for a logit of minus infinity, where it would be 0 times infinity.
  const auto log_p = hn::Max(
      hn::MulSub(hn::LoadU(d, x), hn::Set(d, scale), hn::Set(d, log_sum_exp)), hn::Set(d, -200.0f));
  const auto p = hn::Exp(d, log_p);
  const auto entropy_slope = hn::Mul(hn::Add(log_p, hn::Set(d, entropy)), hn::Set(d, grad_entropy));
  const auto slope = hn::Add(hn::Set(d, grad_log_prob), entropy_slope);
  hn::StoreU(hn::Neg(hn::Mul(hn::Mul(p, slope), hn::Set(d, scale))), d, x);
}

void LogProbsBackwardRows(const LogProbsBackward& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    float* const x = args.logits + i * args.vocab;
    const float scale = InverseTemperature(args.temperatures[i]);
    const float log_sum_exp = args.log_sum_exp[i];
    const float entropy = args.entropy[i];
    const float grad = args.grad_log_probs[i];
    const float grad_entropy = args.grad_entropy[i];
    int64_t j = 0;
    for (; j + kStep <= args.vocab; j += kStep) {
      BackwardAt(Floats(), x + j, scale, log_sum_exp, entropy, grad, grad_entropy);
    }
    for (; j < args.vocab; ++j) {
      BackwardAt(OneFloat(), x + j, scale, log_sum_exp, entropy, grad, grad_entropy);
    }
    if (args.targets[i] >= 0) x[args.targets[i]] += grad * scale;
  }
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

HWY_EXPORT(LogProbsRows);
HWY_EXPORT(LogProbsBackwardRows);

void LogProbsRows(const LogProbsForward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(LogProbsRows)(args, begin, end);
}

void LogProbsBackwardRows(const LogProbsBackward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(LogProbsBackwardRows)(args, begin, end);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
