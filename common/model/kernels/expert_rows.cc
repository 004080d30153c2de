#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/expert_rows.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include "common/model/kernels/expert_rows.h"
#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

constexpr int64_t kStep = kLanes;

// The terms of one sum.
template <typename T>
struct Terms {
  const T* rows;
  const int64_t* places;  // null: the first row is the only one
  const float* weights;
  int64_t count;
  int64_t size;

  const T* Row(int64_t j) const { return rows + (places == nullptr ? 0 : places[j]) * size; }
  float Weight(int64_t j) const { return weights == nullptr ? 1.0f : weights[j]; }
};

// Elements [at, at + lanes) of the sum. Whole registers and tails use the same operations, so an
// element's bits do not depend on its place in the row.
template <class D, typename T>
void SumAt(D d, const Terms<T>& terms, int64_t at, T* out) {
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < terms.count; ++j) {
    sum = hn::MulAdd(hn::Set(d, terms.Weight(j)), LoadFloats(d, terms.Row(j) + at), sum);
  }
  StoreFloats(d, sum, out + at);
}

template <typename T>
void WeightedSumRowsOf(const WeightedSum& args, int64_t begin, int64_t end) {
  const T* const rows = static_cast<const T*>(args.rows);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i * args.terms;
    const Terms<T> terms = {args.places == nullptr ? rows + i * args.size : rows,
                            args.places == nullptr ? nullptr : args.places + first,
                            args.weights == nullptr ? nullptr : args.weights + first, args.terms,
                            args.size};
    T* const out = static_cast<T*>(args.out) + i * args.size;
    int64_t at = 0;
    for (; at + kStep <= args.size; at += kStep) SumAt(Floats(), terms, at, out);
    for (; at < args.size; ++at) SumAt(OneFloat(), terms, at, out);
  }
}

void WeightedSumRows(const WeightedSum& args, int64_t begin, int64_t end) {
  if (args.type == Element::kFloat32) return WeightedSumRowsOf<float>(args, begin, end);
  WeightedSumRowsOf<BFloat16>(args, begin, end);
}

// grad_row = weight grad; returns the product of row and grad.
template <typename T>
float TermBackward(const T* row, const T* grad, float weight, int64_t size, T* grad_row) {
  const Floats d;
  const FloatVec scale = hn::Set(d, weight);
  FloatVec sums = hn::Zero(d);
  int64_t at = 0;
  for (; at + kStep <= size; at += kStep) {
    const FloatVec g = LoadFloats(d, grad + at);
    sums = hn::MulAdd(LoadFloats(d, row + at), g, sums);
    StoreFloats(d, hn::Mul(scale, g), grad_row + at);
  }
  float total = Sum(sums);
  for (; at < size; ++at) {
    const float g = ToFloat(grad[at]);
    total += ToFloat(row[at]) * g;
    FromFloat(weight * g, grad_row[at]);
  }
  return total;
}

template <typename T>
void WeightedSumBackwardRowsOf(const WeightedSumBackward& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const T* const grad = static_cast<const T*>(args.grad_out) + i * args.size;
    for (int64_t j = i * args.terms; j < (i + 1) * args.terms; ++j) {
      const int64_t at = (args.places == nullptr ? j : args.places[j]) * args.size;
      args.grad_weights[j] =
          TermBackward(static_cast<const T*>(args.rows) + at, grad, args.weights[j], args.size,
                       static_cast<T*>(args.grad_rows) + at);
    }
  }
}

void WeightedSumBackwardRows(const WeightedSumBackward& args, int64_t begin, int64_t end) {
  if (args.type == Element::kFloat32) return WeightedSumBackwardRowsOf<float>(args, begin, end);
  WeightedSumBackwardRowsOf<BFloat16>(args, begin, end);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(WeightedSumRows);
HWY_EXPORT(WeightedSumBackwardRows);

void WeightedSumRows(const WeightedSum& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(WeightedSumRows)(args, begin, end);
}

void WeightedSumBackwardRows(const WeightedSumBackward& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(WeightedSumBackwardRows)(args, begin, end);
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
