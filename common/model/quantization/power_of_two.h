// Powers of two, and the type float8_e8m0fnu, whose values they are.
#ifndef TANDEM_COMMON_MODEL_QUANTIZATION_POWER_OF_TWO_H_
#define TANDEM_COMMON_MODEL_QUANTIZATION_POWER_OF_TWO_H_

#include <cstdint>
#include <limits>

namespace tandem::model {

constexpr float PowerOfTwo(int exponent) {
  float value = 1.0F;
  for (; exponent > 0; --exponent) value *= 2.0F;
  for (; exponent < 0; ++exponent) value *= 0.5F;
  return value;
}

// 2^(bits - 127); NaN for 255.
inline constexpr uint8_t kE8M0NaN = 255;
constexpr float E8M0Value(uint8_t bits) {
  if (bits == kE8M0NaN) return std::numeric_limits<float>::quiet_NaN();
  return PowerOfTwo(bits - 127);
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_QUANTIZATION_POWER_OF_TWO_H_
