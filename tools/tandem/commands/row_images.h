// RowImages: reads the image files that the rows of a command's input name.
//
//   const RowImages images("prompts.jsonl");
//   ASSIGN_OR_RETURN(const std::vector<ImageFile> files, images.Read(row));
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_ROW_IMAGES_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_ROW_IMAGES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/images/fetch/image_fetcher.h"
#include "common/images/image_source.h"
#include "common/io/json_fields.h"

namespace tandem::commands {

// Shared by the requests that send it.
using ImageFile = std::shared_ptr<const std::string>;

// How images by http and https URLs are got.
struct ImageFetching {
  std::shared_ptr<const images::ImageFetcher> fetcher;  // null refuses them
  std::function<bool()> interrupted;                    // ends what is being fetched; may be null
};

// Stateless after construction.
class RowImages {
 public:
  // Paths are relative to the folder of `input`, or to the working directory if that is no regular file,
  // such as a pipe.
  explicit RowImages(const std::string& input, ImageFetching fetching = {});

  // The files of the row's "images", a list of paths and URLs; empty without the key. Not decoded.
  // Errors name the row and the image: those of ReadSource().
  absl::StatusOr<std::vector<ImageFile>> Read(const io::JsonFields& row) const;

  // The bytes of one path or URL. Errors: those of images::ReadImageSource() and
  // images::ImageFetcher::Fetch().
  absl::StatusOr<images::ImageBytes> ReadSource(const std::string& source) const;

 private:
  std::string folder_;
  const ImageFetching fetching_;
};

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_ROW_IMAGES_H_
