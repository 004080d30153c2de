#include "common/images/image_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::images {

absl::Status CheckSize(int64_t width, int64_t height, const ImageLimits& limits) {
  if (width <= 0 || height <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header says ", width, " x ", height, " pixels: there is no picture"));
  }
  if (std::max(width, height) > limits.max_side) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header says ", width, " x ", height, " pixels; a side has at most ", limits.max_side));
  }
  // Both are at most 2^31, so the product fits.
  if (width * height > limits.max_pixels) {
    return absl::InvalidArgumentError(absl::StrCat("the header says ", width, " x ", height, " = ",
                                                   width * height, " pixels; an image has at most ",
                                                   limits.max_pixels));
  }
  return absl::OkStatus();
}

}  // namespace tandem::images
