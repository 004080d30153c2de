#include "tools/tandem/driver/prompt_image.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_digest.h"
#include "common/images/image_source.h"
#include "common/status/status_macros.h"

namespace tandem::driver {

absl::StatusOr<std::string> ReadImageFile(const PromptImage& image) {
  ASSIGN_OR_RETURN(images::ImageBytes read,
                   images::ReadImageSource(image.source, /*folder=*/"", images::ImageLimits()));
  if (images::ImageDigest(read.bytes) == image.digest) return std::move(read.bytes);
  return absl::FailedPreconditionError(
      absl::StrCat(read.place, ": the file changed since the data was read: expected the SHA-256 ",
                   absl::BytesToHexString(image.digest), "; start the run again"));
}

}  // namespace tandem::driver
