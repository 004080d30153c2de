#include "common/images/image_digest.h"

#include <openssl/sha.h>

namespace tandem::images {

std::string ImageDigest(absl::string_view file) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(file.data()), file.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

}  // namespace tandem::images
