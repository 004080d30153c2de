// The valid range of rewards and advantages: numbers beyond anything that a judge intends, or that
// float32 cannot square, would train nothing.
#ifndef TANDEM_COMMON_REWARDS_REWARD_RANGE_H_
#define TANDEM_COMMON_REWARDS_REWARD_RANGE_H_

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::rewards {

// Largest magnitude of a reward, a baseline's reward and an advantage. Its squares, summed over the
// 2^20 samples that a step may have, stay below 1e25. Gradients scale with it, and the sum of their
// squares over 1e12 parameters stays below float32's 3.4e38 as long as that of a reward of 1 is
// below 1e20.
inline constexpr double kLargestReward = 1e9;

// False for NaN as well.
inline bool IsReward(double value) { return std::abs(value) <= kLargestReward; }

// For errors: "expected a finite number from -1e+09 to 1e+09; found 1e+308".
inline std::string ExpectedReward(double found) {
  return absl::StrCat("expected a finite number from ", -kLargestReward, " to ", kLargestReward,
                      "; found ", found);
}

}  // namespace tandem::rewards

#endif  // TANDEM_COMMON_REWARDS_REWARD_RANGE_H_
