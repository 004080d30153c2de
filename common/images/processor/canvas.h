// Cuts and pads images.
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_CANVAS_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_CANVAS_H_

#include <array>
#include <cstdint>

#include "common/images/image.h"

namespace tandem::images {

// Returns the window of height x width pixels whose upper left corner is at (top, left) of the image,
// which may be negative; what lies outside has `color`.
Image Window(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width,
             const std::array<uint8_t, 3>& color);

// Cuts the middle out, as torchvision's center_crop() does; a side that is too short is padded with
// black.
Image CenterCrop(const Image& image, int64_t height, int64_t width);

// Pads the shorter side, half before and half after.
Image PadToSquare(const Image& image, const std::array<uint8_t, 3>& color);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_CANVAS_H_
