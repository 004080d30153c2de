// ImageHeader: what a file says of its picture, read before anything is decoded or allocated. The
// readers walk the file's parts to its end, so that a truncated file is found here, with the part
// and byte at which it ends.
#ifndef TANDEM_COMMON_IMAGES_IMAGE_HEADER_H_
#define TANDEM_COMMON_IMAGES_IMAGE_HEADER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/images/image_limits.h"

namespace tandem::images {

struct ImageHeader {
  int64_t width = 0;
  int64_t height = 0;
  // Metadata with the orientation, parts of the file's bytes; empty where there is none.
  absl::string_view exif;
  absl::string_view xmp;
};

// INVALID_ARGUMENT for a file that ends early, contradicts itself, is animated, or exceeds the
// limits.
absl::StatusOr<ImageHeader> ReadPngHeader(absl::string_view bytes, const ImageLimits& limits);
absl::StatusOr<ImageHeader> ReadJpegHeader(absl::string_view bytes, const ImageLimits& limits);
absl::StatusOr<ImageHeader> ReadWebpHeader(absl::string_view bytes, const ImageLimits& limits);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_IMAGE_HEADER_H_
