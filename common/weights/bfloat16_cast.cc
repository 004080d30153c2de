#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/weights/bfloat16_cast.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <cstring>

#include "common/weights/bfloat16_cast.h"
#include "common/weights/run_kernels.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::weights::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void CastAll(const float* from, int64_t elements, std::byte* to) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  // How far ahead memory is asked for: a shard is read once, and its pages may be small, at whose
  // ends the core's own prefetching stops.
  constexpr int64_t kAheadElements = 512;
  const hn::ScalableTag<uint32_t> d;
  const hn::Repartition<uint16_t, decltype(d)> d16;
  const hn::Repartition<uint8_t, decltype(d)> d8;
  const int64_t step = hn::Lanes(d);
  const auto magnitude = hn::Set(d, 0x7FFFFFFFu);
  const auto infinity = hn::Set(d, 0x7F800000u);
  const auto below_half = hn::Set(d, 0x7FFFu);
  const auto one = hn::Set(d, 1u);
  const auto nan = hn::Set(d, 0x7FC0u);
  // The wire bits in the lower halves of the lanes.
  const auto round = [&](const float* at) HWY_ATTR {
    const auto bits = hn::LoadU(d, reinterpret_cast<const uint32_t*>(at));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), one);
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, below_half), odd));
    return hn::IfThenElse(hn::Gt(hn::And(bits, magnitude), infinity), nan, rounded);
  };
  for (; i + 2 * step <= elements; i += 2 * step) {
    hwy::Prefetch(from + i + kAheadElements);
    const auto low = hn::BitCast(d16, round(from + i));
    const auto high = hn::BitCast(d16, round(from + i + step));
    hn::StoreU(hn::BitCast(d8, hn::ConcatEven(d16, high, low)), d8,
               reinterpret_cast<uint8_t*>(to) + i * 2);
  }
#endif
  for (; i < elements; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof(bits));
    const uint16_t half = Bfloat16Bits(bits);
    std::memcpy(to + i * 2, &half, sizeof(half));
  }
}

}  // namespace tandem::weights::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::weights {

HWY_EXPORT(CastAll);

void CastToBfloat16(const float* from, int64_t elements, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(CastAll)(from, elements, to);
}

}  // namespace tandem::weights
#endif  // HWY_ONCE
