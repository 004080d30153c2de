// Image: a decoded picture, three bytes a pixel.
#ifndef TANDEM_COMMON_IMAGES_IMAGE_H_
#define TANDEM_COMMON_IMAGES_IMAGE_H_

#include <cstdint>
#include <vector>

namespace tandem::images {

struct Image {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_IMAGE_H_
