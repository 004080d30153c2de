// PromptImage: an image of a data row, by where its file is. Files are read again when a request or a
// training step needs them: a data set's images need not fit in memory.
//
//   ASSIGN_OR_RETURN(const std::string file, ReadImageFile(prompt.images[0]));
//   request.add_images()->set_data(file);
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_IMAGE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_IMAGE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::driver {

struct PromptImage {
  std::string source;  // an absolute path, or a data URL
  std::string digest;  // SHA-256 of the file when the row was read, 32 bytes

  friend bool operator==(const PromptImage&, const PromptImage&) = default;
};

// The images that samples name, by their digests.
using StepImages = std::map<std::string, PromptImage>;

// FAILED_PRECONDITION if the file is not the one that the row was read with; else the errors of
// images::ReadImageSource().
absl::StatusOr<std::string> ReadImageFile(const PromptImage& image);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_IMAGE_H_
