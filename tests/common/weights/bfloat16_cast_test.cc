#include "common/weights/bfloat16_cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "common/weights/run_kernels.h"
#include "tests/support/on_simd_target.h"

namespace tandem::weights {
namespace {

class Bfloat16CastOnTarget : public testing::OnSimdTarget {};

uint16_t At(const std::vector<std::byte>& bytes, size_t offset) {
  uint16_t value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// The rule itself is held against c10 by weight_kernels_test.
TEST_P(Bfloat16CastOnTarget, RoundsAsTheDevicesRuleDoes) {
  std::vector<float> from;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      from.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  std::vector<std::byte> to(2 * from.size());
  CastToBfloat16(from.data(), static_cast<int64_t>(from.size()), to.data());
  for (size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(At(to, 2 * i), Bfloat16Bits(std::bit_cast<uint32_t>(from[i])))
        << std::hex << std::bit_cast<uint32_t>(from[i]);
  }
}

TEST_P(Bfloat16CastOnTarget, WritesWhatItWasAskedForAndNothingElse) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> from(200);
  for (float& value : from) value = normal(random);
  for (size_t elements = 0; elements < 150; ++elements) {
    const size_t first = elements % 7;
    std::vector<std::byte> to(2 * elements + 3, std::byte{0xA5});
    CastToBfloat16(from.data() + first, static_cast<int64_t>(elements), to.data() + 1);
    EXPECT_EQ(to.front(), std::byte{0xA5});
    EXPECT_EQ(to[2 * elements + 1], std::byte{0xA5});
    EXPECT_EQ(to[2 * elements + 2], std::byte{0xA5});
    for (size_t i = 0; i < elements; ++i) {
      ASSERT_EQ(At(to, 1 + 2 * i), Bfloat16Bits(std::bit_cast<uint32_t>(from[first + i])));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Bfloat16CastOnTarget, testing::SimdTargets(),
                         testing::SimdTargetName);

}  // namespace
}  // namespace tandem::weights
