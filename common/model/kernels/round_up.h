#ifndef TANDEM_COMMON_MODEL_KERNELS_ROUND_UP_H_
#define TANDEM_COMMON_MODEL_KERNELS_ROUND_UP_H_

#include <cstdint>

namespace tandem::model::kernels {

// The least multiple that is not below a value of 0 or more.
inline int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_ROUND_UP_H_
