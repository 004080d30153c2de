// PromptImage: an image of a prompt. That of a data row says where its file is, which is read again
// when a request or a training step needs it: a data set's images need not fit in memory.
//
//   ASSIGN_OR_RETURN(std::string file, ReadImageFile(prompt.images[0]));
//   request.add_images()->set_data(std::move(file));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_IMAGE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_IMAGE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::driver {

// A file that several requests share.
using ImageFile = std::shared_ptr<const std::string>;

struct PromptImage {
  std::string source;  // an absolute path, or a data URL
  std::string digest;  // SHA-256 of the file when the row was read, 32 bytes
  // The file itself, in place of the other two, where its reader keeps it; else null.
  ImageFile file = nullptr;

  friend bool operator==(const PromptImage&, const PromptImage&) = default;
};

// `file`: the bytes that `source` names, a path relative to `folder` or a data URL.
PromptImage MakePromptImage(const std::string& source, const std::string& folder,
                            absl::string_view file);

// Bytes of the file, or about as many; 0 if it is gone.
int64_t SizeOf(const PromptImage& image);

// Whether the source has the file in itself.
bool IsDataUrl(const PromptImage& image);

// The images that samples name, by their digests.
using StepImages = std::map<std::string, PromptImage>;

// Reads the image that `source` names, a path relative to `folder` or a data URL, and returns where it
// is. Errors of images::ReadImageSource().
absl::StatusOr<PromptImage> FindImage(const std::string& source, const std::string& folder);

// FAILED_PRECONDITION if the file is not the one that the row was read with; else the errors of
// images::ReadImageSource().
absl::StatusOr<std::string> ReadImageFile(const PromptImage& image);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_IMAGE_H_
