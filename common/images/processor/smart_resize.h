// SmartResize: the size to which Qwen's processors bring an image.
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_SMART_RESIZE_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_SMART_RESIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/images/processor/preprocessor_config.h"

namespace tandem::images {

// Sides that are multiples of `factor`, near the image's shape, of min_pixels to max_pixels together:
// the arithmetic of transformers' smart_resize(), in the same doubles. INVALID_ARGUMENT if one side is
// more than 200 times the other.
absl::StatusOr<ImageSize> SmartResize(ImageSize image, int64_t factor, int64_t min_pixels,
                                      int64_t max_pixels);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_SMART_RESIZE_H_
