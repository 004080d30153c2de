// ImageLimits: what a picture from outside may cost. Decoders check it against the header, before they
// allocate anything.
#ifndef TANDEM_COMMON_IMAGES_IMAGE_LIMITS_H_
#define TANDEM_COMMON_IMAGES_IMAGE_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace tandem::images {

struct ImageLimits {
  // Of the encoded file.
  int64_t max_bytes = int64_t{64} << 20;
  // Pillow warns of a "decompression bomb" above this number. Decoding as many pixels takes up to 1 GB:
  // a progressive JPEG's coefficients or an interlaced PNG's samples, and the RGB bytes.
  int64_t max_pixels = 89'478'485;
  // Of the longer side; JPEG's own limit.
  int64_t max_side = 65'535;
  // Pixels times scans of a JPEG: a scan goes over all pixels however few bytes it has, so this bounds
  // the time. Encoders write ten to twenty scans.
  int64_t max_scanned_pixels = int64_t{1} << 31;
};

// INVALID_ARGUMENT, with what the header says and the limit, if an image of this size exceeds them
// or has no pixels.
absl::Status CheckSize(int64_t width, int64_t height, const ImageLimits& limits);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_IMAGE_LIMITS_H_
