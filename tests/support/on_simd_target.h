// Runs a test once for each kind of vector that its code is compiled for and this CPU has.
//
//   class CastOnTarget : public OnSimdTarget {};
//   TEST_P(CastOnTarget, Rounds) { ... }
//   INSTANTIATE_TEST_SUITE_P(Targets, CastOnTarget, SimdTargets(), SimdTargetName);
#ifndef TANDEM_TESTS_SUPPORT_ON_SIMD_TARGET_H_
#define TANDEM_TESTS_SUPPORT_ON_SIMD_TARGET_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hwy/highway.h"

namespace tandem::testing {

class OnSimdTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { Use(GetParam()); }
  void TearDown() override { Use(0); }

 private:
  static void Use(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline auto SimdTargets() {
  std::vector<int64_t> targets;
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  return ::testing::ValuesIn(targets);
}

inline std::string SimdTargetName(const ::testing::TestParamInfo<int64_t>& info) {
  return std::string(hwy::TargetName(info.param)).substr(0, 8);
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_ON_SIMD_TARGET_H_
