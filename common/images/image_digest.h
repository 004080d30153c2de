// ImageDigest: what names an image wherever it is not sent along: in samples, and in the keys of caches.
//
//   const std::string digest = images::ImageDigest(file);  // 32 bytes
#ifndef TANDEM_COMMON_IMAGES_IMAGE_DIGEST_H_
#define TANDEM_COMMON_IMAGES_IMAGE_DIGEST_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem::images {

// The SHA-256 digest of the file's bytes, 32 bytes. Cryptographic: files come from outside, and
// whoever finds two with one digest would see the other's rows.
std::string ImageDigest(absl::string_view file);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_IMAGE_DIGEST_H_
