// Powers of two, and the type float8_e8m0fnu, whose values they are.
#ifndef TANDEM_COMMON_MODEL_QUANTIZATION_POWER_OF_TWO_H_
#define TANDEM_COMMON_MODEL_QUANTIZATION_POWER_OF_TWO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tandem::model {

constexpr float PowerOfTwo(int exponent) {
  float value = 1.0F;
  for (; exponent > 0; --exponent) value *= 2.0F;
  for (; exponent < 0; ++exponent) value *= 0.5F;
  return value;
}

// By bits: 2^(bits - 127), and NaN for 255.
inline constexpr uint8_t kE8M0NaN = 255;
inline constexpr std::array<float, 256> kE8M0 = [] {
  std::array<float, 256> values{};
  for (int bits = 0; bits < kE8M0NaN; ++bits) {
    values[static_cast<size_t>(bits)] = PowerOfTwo(bits - 127);
  }
  values[kE8M0NaN] = std::numeric_limits<float>::quiet_NaN();
  return values;
}();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_QUANTIZATION_POWER_OF_TWO_H_
