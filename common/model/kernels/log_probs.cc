#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/log_probs.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>

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

// With z = x * scale - offset, all of them at most 0: adds exp(z) to `sums` and z exp(z) to
// `weighted`.
template <class D>
void AddExp(D d, const float* x, hn::Vec<D> scale, hn::Vec<D> offset, hn::Vec<D>& sums,
            hn::Vec<D>& weighted) {
  const auto z = hn::MulSub(hn::LoadU(d, x), scale, offset);
  // Below this exp() is 0 in float32; an infinite z would make 0 times infinity.
  const auto bounded = hn::Max(z, hn::Set(d, -200.0f));
  const auto e = hn::Exp(d, bounded);
  sums = hn::Add(sums, e);
  weighted = hn::MulAdd(bounded, e, weighted);
}

void LogProbsRows(const LogProbsForward& args, int64_t begin, int64_t end) {
  const Floats d;
  const OneFloat one;
  for (int64_t i = begin; i < end; ++i) {
    const float* const x = args.logits + i * args.vocab;
    const float scale = 1.0f / args.temperatures[i];
    const float most = MaxOf(x, args.vocab) * scale;
    FloatVec sums = hn::Zero(d);
    FloatVec weighted = hn::Zero(d);
    int64_t j = 0;
    for (; j + kStep <= args.vocab; j += kStep) {
      AddExp(d, x + j, hn::Set(d, scale), hn::Set(d, most), sums, weighted);
    }
    auto last_sum = hn::Zero(one);
    auto last_weighted = hn::Zero(one);
    for (; j < args.vocab; ++j) {
      AddExp(one, x + j, hn::Set(one, scale), hn::Set(one, most), last_sum, last_weighted);
    }
    const float sum = Sum(sums) + hn::GetLane(last_sum);
    const float mean = (Sum(weighted) + hn::GetLane(last_weighted)) / sum;
    const float log_sum = std::log(sum);
    if (args.targets[i] >= 0) args.log_probs[i] = x[args.targets[i]] * scale - most - log_sum;
    args.entropy[i] = log_sum - mean;
    if (args.log_sum_exp != nullptr) args.log_sum_exp[i] = most + log_sum;
  }
}

// d logits = ((target - p) g_logprob - p (log p + H) g_entropy) / temperature, but for the target's
// own term, which the caller adds.
template <class D>
void BackwardAt(D d, float* x, float scale, float log_sum_exp, float entropy, float grad_log_prob,
                float grad_entropy) {
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
    const float scale = 1.0f / args.temperatures[i];
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
