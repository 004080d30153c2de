// OverWhite: lays a color over a white background, as Pillow's alpha_composite() does, in integers.
#ifndef TANDEM_COMMON_IMAGES_OVER_WHITE_H_
#define TANDEM_COMMON_IMAGES_OVER_WHITE_H_

#include <cstdint>

namespace tandem::images {

// Pillow divides by 255 with shifts and keeps seven more bits; its last bit differs from a division's.
inline uint8_t OverWhite(uint32_t color, uint32_t alpha) {
  const uint32_t sum = (color * alpha + 255 * (255 - alpha)) * 128 + 128 * 128;
  return static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> 7);
}

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_OVER_WHITE_H_
