// The element types of the CPU kernels. Kernels compute in float32 whatever they load and store,
// and round once, to nearest even, when they store.
#ifndef TANDEM_COMMON_MODEL_KERNELS_ELEMENT_H_
#define TANDEM_COMMON_MODEL_KERNELS_ELEMENT_H_

#include <bit>
#include <cstdint>

namespace tandem::model::kernels {

enum class Element : uint8_t { kFloat32, kBFloat16 };

// The upper half of a float32.
struct BFloat16 {
  uint16_t bits;
};

inline float ToFloat(float value) { return value; }
inline float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

inline void FromFloat(float value, float& out) { out = value; }
inline void FromFloat(float value, BFloat16& out) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  out.bits = is_nan ? 0x7FC0 : static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline int64_t SizeOf(Element type) { return type == Element::kFloat32 ? 4 : 2; }

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_ELEMENT_H_
