// The rotation of a head's elements by their angles, in float32, and copies of a head to float32 and
// back.
#if defined(TANDEM_COMMON_MODEL_KERNELS_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_ROTATE_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_ROTATE_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_ROTATE_INL_H_
#endif

#include <cstdint>

#include "common/model/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// to[0, size) = from[0, size), times `factor`.
template <typename From, typename To>
void CopyScaled(const From* from, int64_t size, float factor, To* to) {
  constexpr int64_t kStep = kLanes;
  const Floats d;
  const FloatVec factors = hn::Set(d, factor);
  int64_t j = 0;
  for (; j + kStep <= size; j += kStep) {
    StoreFloats(d, hn::Mul(LoadFloats(d, from + j), factors), to + j);
  }
  const OneFloat one;
  for (; j < size; ++j) {
    StoreFloats(one, hn::Mul(LoadFloats(one, from + j), hn::Set(one, factor)), to + j);
  }
}

// Rotates pairs (a, b) by their angles, by the negative ones if kBack.
template <bool kBack, class D>
HWY_INLINE void RotatePairs(D d, const float* cos, const float* sin, hn::Vec<D>& a, hn::Vec<D>& b) {
  const auto c = hn::LoadU(d, cos);
  const auto s = kBack ? hn::Neg(hn::LoadU(d, sin)) : hn::LoadU(d, sin);
  const auto first = hn::NegMulAdd(b, s, hn::Mul(a, c));
  b = hn::MulAdd(a, s, hn::Mul(b, c));
  a = first;
}

// Rotates x[0, 2 half) in place: pairs (2i, 2i + 1) if `interleaved`, else (i, i + half). cos, sin:
// [half].
template <bool kBack>
void RotateElements(const float* cos, const float* sin, int64_t half, bool interleaved, float* x) {
  constexpr int64_t kStep = kLanes;
  const auto rotate = [&](auto d, int64_t j) {
    hn::Vec<decltype(d)> a, b;
    if (interleaved) {
      hn::LoadInterleaved2(d, x + 2 * j, a, b);
      RotatePairs<kBack>(d, cos + j, sin + j, a, b);
      hn::StoreInterleaved2(a, b, d, x + 2 * j);
    } else {
      a = hn::LoadU(d, x + j);
      b = hn::LoadU(d, x + half + j);
      RotatePairs<kBack>(d, cos + j, sin + j, a, b);
      hn::StoreU(a, d, x + j);
      hn::StoreU(b, d, x + half + j);
    }
  };
  int64_t j = 0;
  for (; j + kStep <= half; j += kStep) rotate(Floats(), j);
  for (; j < half; ++j) rotate(OneFloat(), j);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
