// Shared by the kernels on each instruction set: vectors of float32 loaded from and stored to both
// element types, and sums in a fixed order. hwy/foreach_target.h includes it once per target.
#if defined(TANDEM_COMMON_MODEL_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_COMMON_MODEL_KERNELS_VECTOR_INL_H_
#undef TANDEM_COMMON_MODEL_KERNELS_VECTOR_INL_H_
#else
#define TANDEM_COMMON_MODEL_KERNELS_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "common/model/kernels/element.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;     // a whole register
using OneFloat = hn::CappedTag<float, 1>;  // for the tail of a row
using FloatVec = hn::Vec<Floats>;
constexpr size_t kLanes = hn::MaxLanes(Floats());

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<uint16_t, D> half_bits;
  const auto half = hn::LoadU(half_bits, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, half)));
}

template <class D>
HWY_INLINE void StoreFloats(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
}

template <class D>
HWY_INLINE void StoreFloats(D d, hn::Vec<D> value, BFloat16* to) {
  const hn::RebindToSigned<D> bits;
  const hn::Rebind<uint16_t, D> half_bits;
  const auto quiet =
      hn::IfThenElse(hn::IsNaN(value), hn::BitCast(d, hn::Set(bits, 0x7FC00000)), value);
  const auto raw = hn::BitCast(bits, quiet);
  const auto odd = hn::And(hn::ShiftRight<16>(raw), hn::Set(bits, 1));
  // The arithmetic of FromFloat(), so that whole registers and tails round alike.
  const auto rounded = hn::Add(hn::Add(raw, hn::Set(bits, 0x7FFF)), odd);
  const hn::RebindToUnsigned<D> unsigned_bits;
  const auto upper = hn::ShiftRight<16>(hn::BitCast(unsigned_bits, rounded));
  // In range of int32, so the signed demotion that every target has does not saturate.
  hn::StoreU(hn::DemoteTo(half_bits, hn::BitCast(bits, upper)), half_bits,
             reinterpret_cast<uint16_t*>(to));
}

// One lane, for the ends of rows: uses the scalar conversions, so that nothing beyond is touched.
HWY_INLINE hn::Vec<OneFloat> LoadFloats(OneFloat d, const BFloat16* from) {
  return hn::Set(d, ToFloat(*from));
}
HWY_INLINE void StoreFloats(OneFloat d, hn::Vec<OneFloat> value, BFloat16* to) {
  FromFloat(hn::GetLane(value), *to);
}

// The order of lanes is fixed on a target but differs between targets, one reason why CPUs with
// different instruction sets give different bits.
HWY_INLINE float Sum(FloatVec value) { return hn::GetLane(hn::SumOfLanes(Floats(), value)); }

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
