// The decoders of the formats, each a wrapper of a library that is written in C. They get a file
// whose header was read and found within the limits, and return RGB as Pillow's convert("RGB")
// makes it, transparent pixels laid over white.
#ifndef TANDEM_COMMON_IMAGES_DECODERS_H_
#define TANDEM_COMMON_IMAGES_DECODERS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/images/image.h"
#include "common/images/image_header.h"

namespace tandem::images {

// INVALID_ARGUMENT, with the row where it is known, for damaged data.
absl::StatusOr<Image> DecodePng(absl::string_view bytes, const ImageHeader& header);
absl::StatusOr<Image> DecodeJpeg(absl::string_view bytes, const ImageHeader& header);
absl::StatusOr<Image> DecodeWebp(absl::string_view bytes, const ImageHeader& header);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_DECODERS_H_
