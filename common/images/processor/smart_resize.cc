#include "common/images/processor/smart_resize.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace tandem::images {

absl::StatusOr<ImageSize> SmartResize(ImageSize image, int64_t factor, int64_t min_pixels,
                                      int64_t max_pixels) {
  constexpr int64_t kMaxRatio = 200;
  if (std::max(image.height, image.width) > kMaxRatio * std::min(image.height, image.width)) {
    return absl::InvalidArgumentError(absl::StrCat("the image has ", image.width, " x ",
                                                   image.height, " pixels; a side is at most ",
                                                   kMaxRatio, " times the other"));
  }
  const double height = static_cast<double>(image.height);
  const double width = static_cast<double>(image.width);
  const double step = static_cast<double>(factor);
  const auto times = [factor](double steps) { return static_cast<int64_t>(steps) * factor; };
  // Halves to the even neighbour, as Python's round().
  ImageSize out = {times(std::nearbyint(height / step)), times(std::nearbyint(width / step))};
  if (out.height * out.width > max_pixels) {
    const double shrink = std::sqrt(height * width / static_cast<double>(max_pixels));
    out.height = std::max(factor, times(std::floor(height / shrink / step)));
    out.width = std::max(factor, times(std::floor(width / shrink / step)));
  } else if (out.height * out.width < min_pixels) {
    const double grow = std::sqrt(static_cast<double>(min_pixels) / (height * width));
    out.height = times(std::ceil(height * grow / step));
    out.width = times(std::ceil(width * grow / step));
  }
  return out;
}

}  // namespace tandem::images
