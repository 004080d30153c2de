#include "common/images/image_digest.h"

#include "common/security/secret.h"

namespace tandem::images {

std::string ImageDigest(absl::string_view file) { return security::Digest(file); }

}  // namespace tandem::images
