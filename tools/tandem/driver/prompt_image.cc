#include "tools/tandem/driver/prompt_image.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_digest.h"
#include "common/images/image_source.h"
#include "common/status/status_macros.h"

namespace tandem::driver {

PromptImage MakePromptImage(const std::string& source, const std::string& folder,
                            absl::string_view file) {
  PromptImage image = {source, images::ImageDigest(file)};
  if (IsDataUrl(image)) return image;
  // Whatever the working directory will be.
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::absolute(std::filesystem::path(folder) / source, error);
  if (!error) image.source = path.lexically_normal().string();
  return image;
}

absl::StatusOr<PromptImage> FindImage(const std::string& source, const std::string& folder) {
  ASSIGN_OR_RETURN(const images::ImageBytes read,
                   images::ReadImageSource(source, folder, images::ImageLimits()));
  return MakePromptImage(source, folder, read.bytes);
}

int64_t SizeOf(const PromptImage& image) {
  if (image.file != nullptr) return static_cast<int64_t>(image.file->size());
  if (IsDataUrl(image)) return static_cast<int64_t>(image.source.size()) * 3 / 4;
  std::error_code error;
  const auto size = std::filesystem::file_size(image.source, error);
  return error ? 0 : static_cast<int64_t>(size);
}

bool IsDataUrl(const PromptImage& image) {
  return absl::StartsWithIgnoreCase(image.source, "data:");
}

absl::StatusOr<std::string> ReadImageFile(const PromptImage& image) {
  if (image.file != nullptr) return *image.file;
  ASSIGN_OR_RETURN(images::ImageBytes read,
                   images::ReadImageSource(image.source, /*folder=*/"", images::ImageLimits()));
  if (images::ImageDigest(read.bytes) == image.digest) return std::move(read.bytes);
  return absl::FailedPreconditionError(
      absl::StrCat(read.place, ": the file changed since the data was read: expected the SHA-256 ",
                   absl::BytesToHexString(image.digest), "; start the run again"));
}

}  // namespace tandem::driver
