#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/weights/change_mask.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <cstring>

#include "common/weights/change_mask.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::weights::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
void FindChangesOf(const std::byte* base, const std::byte* next, int64_t elements, uint64_t* mask) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<T> d;
  const hn::Repartition<uint8_t, decltype(d)> d8;
  const auto load = [&](const std::byte* from) {
    return hn::BitCast(d, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(from)));
  };
  const int64_t step = hn::Lanes(d);
  if (step >= 8) {  // a register gives whole bytes of the mask
    for (; i + step <= elements; i += step) {
      const auto differ = hn::Ne(load(base + i * sizeof(T)), load(next + i * sizeof(T)));
      hn::StoreMaskBits(d, differ, reinterpret_cast<uint8_t*>(mask) + i / 8);
    }
  }
#endif
  for (int64_t j = i; j < elements; ++j) {
    T before, after;
    std::memcpy(&before, base + j * sizeof(T), sizeof(T));
    std::memcpy(&after, next + j * sizeof(T), sizeof(T));
    // Clears the old bits of the mask from this position on.
    const uint64_t below = (uint64_t{1} << (j % 64)) - 1;
    mask[j / 64] = (mask[j / 64] & below) | uint64_t{before != after} << (j % 64);
  }
  if (i == elements && elements % 64 != 0) mask[i / 64] &= (uint64_t{1} << (i % 64)) - 1;
}

void FindChanges(const std::byte* base, const std::byte* next, int64_t elements, int element_size,
                 uint64_t* mask) {
  if (element_size == 2) {
    FindChangesOf<uint16_t>(base, next, elements, mask);
  } else {
    FindChangesOf<uint32_t>(base, next, elements, mask);
  }
}

}  // namespace tandem::weights::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <bit>

namespace tandem::weights {

static_assert(std::endian::native == std::endian::little, "bytes of the mask are stored in order");

HWY_EXPORT(FindChanges);

void FindChanges(const std::byte* base, const std::byte* next, int64_t elements, int element_size,
                 uint64_t* mask) {
  HWY_DYNAMIC_DISPATCH(FindChanges)(base, next, elements, element_size, mask);
}

}  // namespace tandem::weights
#endif  // HWY_ONCE
