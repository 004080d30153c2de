#include "common/weights/change_mask.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/on_simd_target.h"
#include "tests/support/random_bytes.h"

namespace tandem::weights {
namespace {

class ChangeMaskOnTarget : public testing::OnSimdTarget {};

TEST_P(ChangeMaskOnTarget, HasABitForEachElementThatDiffers) {
  std::mt19937_64 random(1);
  for (const int element_size : {2, 4}) {
    for (int64_t elements = 0; elements < 300; ++elements) {
      const std::vector<std::byte> base = testing::RandomBytes(elements * element_size + 1, random);
      std::vector<std::byte> next = base;
      std::vector<uint64_t> expected((elements + 63) / 64);
      for (int64_t i = 0; i < elements; ++i) {
        if (random() % 5 != 0) continue;
        // One bit of any of its bytes, from byte 1 on: at no particular address.
        next[1 + i * element_size + random() % element_size] ^=
            static_cast<std::byte>(1 << (random() % 8));
        expected[i / 64] |= uint64_t{1} << (i % 64);
      }
      std::vector<uint64_t> mask(expected.size(), ~uint64_t{0});
      FindChanges(base.data() + 1, next.data() + 1, elements, element_size, mask.data());
      ASSERT_EQ(mask, expected) << elements << " of " << element_size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ChangeMaskOnTarget, testing::SimdTargets(),
                         testing::SimdTargetName);

}  // namespace
}  // namespace tandem::weights
