#include "common/weights/change_mask.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "hwy/highway.h"
#include "tests/support/random_bytes.h"

namespace tandem::weights {
namespace {

class ChangeMaskOnTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

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

INSTANTIATE_TEST_SUITE_P(Targets, ChangeMaskOnTarget, ::testing::ValuesIn([] {
                           std::vector<int64_t> targets;
                           for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
                             if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
                           }
                           return targets;
                         }()),
                         [](const ::testing::TestParamInfo<int64_t>& info) {
                           return std::string(hwy::TargetName(info.param)).substr(0, 8);
                         });

}  // namespace
}  // namespace tandem::weights
