// One row's norm, forward and backward, on each instruction set: RMS norms and LayerNorms, with and
// without weights and biases. hwy/foreach_target.h includes it once per target.
#if defined(TANDEM_COMMON_MODEL_KERNELS_NORM_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_NORM_ROW_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_NORM_ROW_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_NORM_ROW_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "common/model/kernels/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Sums over a row: whole registers first, lane by lane, then the tail. The order depends on the
// size alone, so a row has the same bits in every batch.
template <typename T>
float SumOfSquares(const T* x, int64_t size) {
  constexpr int64_t kStep = kLanes;
  const Floats d;
  FloatVec sums = hn::Zero(d);
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    const FloatVec v = LoadFloats(d, x + j);
    sums = hn::MulAdd(v, v, sums);
  }
  float total = Sum(sums);
  for (; j < size; ++j) total += ToFloat(x[j]) * ToFloat(x[j]);
  return total;
}

template <typename T>
float SumOfElements(const T* x, int64_t size) {
  constexpr int64_t kStep = kLanes;
  const Floats d;
  FloatVec sums = hn::Zero(d);
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) sums = hn::Add(LoadFloats(d, x + j), sums);
  float total = Sum(sums);
  for (; j < size; ++j) total += ToFloat(x[j]);
  return total;
}

// The sum of (x - mean)^2. A second pass over the row: the difference of mean squares would cancel.
template <typename T>
float SumOfSquaresAround(float mean, const T* x, int64_t size) {
  constexpr int64_t kStep = kLanes;
  const Floats d;
  const FloatVec means = hn::Set(d, mean);
  FloatVec sums = hn::Zero(d);
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    const FloatVec v = hn::Sub(LoadFloats(d, x + j), means);
    sums = hn::MulAdd(v, v, sums);
  }
  float total = Sum(sums);
  for (; j < size; ++j) total += (ToFloat(x[j]) - mean) * (ToFloat(x[j]) - mean);
  return total;
}

// A row's normed elements are (x - mean) * inverse.
struct Moments {
  float mean = 0.0f;  // 0 for an RMS norm
  float inverse = 0.0f;
};

template <typename T>
Moments MomentsOf(const T* x, int64_t size, bool centered, float eps) {
  const float count = static_cast<float>(size);
  if (!centered) return {0.0f, 1.0f / std::sqrt(SumOfSquares(x, size) / count + eps)};
  const float mean = SumOfElements(x, size) / count;
  return {mean, 1.0f / std::sqrt(SumOfSquaresAround(mean, x, size) / count + eps)};
}

// What is done to the normed elements n: n * (weight + offset) + bias.
template <typename T>
struct Affine {
  const T* weight = nullptr;  // [size]; null: n + bias
  const T* bias = nullptr;    // or null
  float offset = 0.0f;
};

// kPlain: an RMS norm with a weight alone, whose loops have nothing else to do.
template <bool kPlain, class D, typename T>
HWY_INLINE hn::Vec<D> NormedAt(D d, const T* x, const Moments& moments) {
  auto v = LoadFloats(d, x);
  if constexpr (!kPlain) v = hn::Sub(v, hn::Set(d, moments.mean));
  return hn::Mul(v, hn::Set(d, moments.inverse));
}

// v * (weight + offset)
template <bool kPlain, class D, typename T>
HWY_INLINE hn::Vec<D> ScaledAt(D d, hn::Vec<D> v, const Affine<T>& affine, int64_t j) {
  if constexpr (kPlain) return hn::Mul(v, LoadFloats(d, affine.weight + j));
  if (affine.weight == nullptr) return v;
  return hn::Mul(v, hn::Add(LoadFloats(d, affine.weight + j), hn::Set(d, affine.offset)));
}

template <bool kPlain, class D, typename T>
HWY_INLINE void NormAt(D d, const T* x, const Affine<T>& affine, const Moments& moments, int64_t j,
                       T* out) {
  auto v = ScaledAt<kPlain>(d, NormedAt<kPlain>(d, x + j, moments), affine, j);
  if constexpr (!kPlain) {
    if (affine.bias != nullptr) v = hn::Add(v, LoadFloats(d, affine.bias + j));
  }
  StoreFloats(d, v, out + j);
}

// `out` may be x.
template <bool kPlain, typename T>
void NormRow(const T* x, const Affine<T>& affine, const Moments& moments, int64_t size, T* out) {
  constexpr int64_t kStep = kLanes;
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) NormAt<kPlain>(Floats(), x, affine, moments, j, out);
  for (; j < size; ++j) NormAt<kPlain>(OneFloat(), x, affine, moments, j, out);
}

// Sums of the row's terms, added to: grad_weight += g n, grad_bias += g; each may be null.
struct AffineGradient {
  float* weight = nullptr;
  float* bias = nullptr;
};

// Sums of one row, for the gradient of its elements.
template <class D>
struct RowSums {
  hn::Vec<D> products;   // g w n
  hn::Vec<D> gradients;  // g w
};

template <bool kPlain, class D, typename T>
HWY_INLINE void AddToSums(D d, const T* x, const Affine<T>& affine, const Moments& moments,
                          const T* grad, int64_t j, const AffineGradient& to, RowSums<D>& sums) {
  const auto g = LoadFloats(d, grad + j);
  const auto normed = NormedAt<kPlain>(d, x + j, moments);
  const auto scaled = ScaledAt<kPlain>(d, g, affine, j);
  sums.products = hn::MulAdd(scaled, normed, sums.products);
  if constexpr (!kPlain) sums.gradients = hn::Add(scaled, sums.gradients);
  if (to.weight != nullptr) {
    hn::StoreU(hn::MulAdd(g, normed, hn::LoadU(d, to.weight + j)), d, to.weight + j);
  }
  if constexpr (!kPlain) {
    if (to.bias != nullptr) hn::StoreU(hn::Add(g, hn::LoadU(d, to.bias + j)), d, to.bias + j);
  }
}

// Means of a row's sums.
struct RowMeans {
  float products = 0.0f;
  float gradients = 0.0f;  // 0 for an RMS norm
};

template <bool kPlain, class D, typename T>
HWY_INLINE void NormGradientAt(D d, const T* x, const Affine<T>& affine, const Moments& moments,
                               const T* grad, const T* extra, const RowMeans& means, int64_t j,
                               T* grad_x) {
  const auto normed = NormedAt<kPlain>(d, x + j, moments);
  auto scaled = ScaledAt<kPlain>(d, LoadFloats(d, grad + j), affine, j);
  if constexpr (!kPlain) scaled = hn::Sub(scaled, hn::Set(d, means.gradients));
  auto out = hn::Mul(hn::NegMulAdd(normed, hn::Set(d, means.products), scaled),
                     hn::Set(d, moments.inverse));
  if (extra != nullptr) out = hn::Add(out, LoadFloats(d, extra + j));
  StoreFloats(d, out, grad_x + j);
}

// grad_x = (g w - mean(g w) - n mean(g w n)) * inverse + extra, without the first mean for an RMS
// norm. `extra` may be null; `grad_x` may be `grad`.
template <bool kPlain, typename T>
void NormRowBackward(const T* x, const Affine<T>& affine, const Moments& moments, bool centered,
                     const T* grad, const T* extra, int64_t size, T* grad_x,
                     const AffineGradient& to) {
  constexpr int64_t kStep = kLanes;
  const Floats d;
  const OneFloat one;
  RowSums<Floats> sums{hn::Zero(d), hn::Zero(d)};
  RowSums<OneFloat> tail{hn::Zero(one), hn::Zero(one)};
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    AddToSums<kPlain>(d, x, affine, moments, grad, j, to, sums);
  }
  for (; j < size; ++j) AddToSums<kPlain>(one, x, affine, moments, grad, j, to, tail);
  const float count = static_cast<float>(size);
  RowMeans means{(Sum(sums.products) + hn::GetLane(tail.products)) / count, 0.0f};
  if (centered) means.gradients = (Sum(sums.gradients) + hn::GetLane(tail.gradients)) / count;
  for (j = 0; j + kStep <= size; j += kStep) {
    NormGradientAt<kPlain>(d, x, affine, moments, grad, extra, means, j, grad_x);
  }
  for (; j < size; ++j) {
    NormGradientAt<kPlain>(one, x, affine, moments, grad, extra, means, j, grad_x);
  }
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
