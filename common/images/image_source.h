// Reads the bytes of an image that a user names: a file, or a data URL.
//
//   ASSIGN_OR_RETURN(const images::ImageBytes read,
//                    images::ReadImageSource("cat.png", folder, images::ImageLimits()));
//   ASSIGN_OR_RETURN(const images::Image image,
//                    images::DecodeImage(read.bytes, read.place, images::ImageLimits()));
#ifndef TANDEM_COMMON_IMAGES_IMAGE_SOURCE_H_
#define TANDEM_COMMON_IMAGES_IMAGE_SOURCE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/images/image_limits.h"

namespace tandem::images {

// Whether `source` is an http or https URL, which images::ImageFetcher fetches where the user allows it.
bool IsWebUrl(absl::string_view source);

struct ImageBytes {
  std::string bytes;
  std::string place;  // for messages: the path, or "data URL"
};

// `source`: a path, relative to `folder`, of a regular file; or a data URL (RFC 2397), whose media
// type is ignored, because the content tells. PERMISSION_DENIED for http and https, INVALID_ARGUMENT for
// other URLs and damaged data URLs, RESOURCE_EXHAUSTED for a file above limits.max_bytes, else what
// reading the file gives. For what a machine's user names: a service must not read the paths that its
// clients send.
absl::StatusOr<ImageBytes> ReadImageSource(const std::string& source, const std::string& folder,
                                           const ImageLimits& limits);

// The bytes of a data URL: "data:image/png;base64,iVBOR..." or, without base64, percent-encoded. They
// are fewer than the URL's.
absl::StatusOr<std::string> DecodeDataUrl(absl::string_view url);

// A picture's file as a data URL, in base64. Errors of ReadImageInfo() with default limits, which begin
// with `place`.
absl::StatusOr<std::string> DataUrlOf(absl::string_view file, const std::string& place);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_IMAGE_SOURCE_H_
