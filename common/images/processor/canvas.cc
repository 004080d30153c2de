#include "common/images/processor/canvas.h"

#include <algorithm>
#include <cstring>

namespace tandem::images {

Image Window(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width,
             const std::array<uint8_t, 3>& color) {
  Image out{height, width, std::vector<uint8_t>(height * width * 3)};
  for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = color[i % 3];
  const int64_t first = std::max<int64_t>(0, -left);
  const int64_t end = std::min(width, image.width - left);
  if (first >= end) return out;
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(height, image.height - top); ++y) {
    std::memcpy(&out.rgb[3 * (y * width + first)],
                &image.rgb[3 * ((y + top) * image.width + left + first)], 3 * (end - first));
  }
  return out;
}

Image CenterCrop(const Image& image, int64_t height, int64_t width) {
  // Too short: as much black before as after, one less before. Too long: rounded towards the start.
  const auto offset = [](int64_t have, int64_t want) {
    return have < want ? -((want - have) / 2) : (have - want) / 2;
  };
  return Window(image, offset(image.height, height), offset(image.width, width), height, width, {});
}

Image PadToSquare(const Image& image, const std::array<uint8_t, 3>& color) {
  const int64_t side = std::max(image.height, image.width);
  return Window(image, -((side - image.height) / 2), -((side - image.width) / 2), side, side,
                color);
}

}  // namespace tandem::images
