// RowImages: reads the image files that the rows of a command's input name.
//
//   const RowImages images("prompts.jsonl");
//   ASSIGN_OR_RETURN(const std::vector<ImageFile> files, images.Read(row));
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_ROW_IMAGES_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_ROW_IMAGES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/images/image_source.h"
#include "common/io/json_fields.h"

namespace tandem::commands {

// Shared by the requests that send it.
using ImageFile = std::shared_ptr<const std::string>;

// Stateless after construction.
class RowImages {
 public:
  // Paths are relative to the folder of `input`, or to the working directory if that is no regular file,
  // such as a pipe.
  explicit RowImages(const std::string& input);

  // The files of the row's "images", a list of paths and data URLs; empty without the key. Not decoded.
  // Errors name the row and the image: those of images::ReadImageSource().
  absl::StatusOr<std::vector<ImageFile>> Read(const io::JsonFields& row) const;

  // The bytes of one path or data URL. Errors: those of images::ReadImageSource().
  absl::StatusOr<images::ImageBytes> ReadSource(const std::string& source) const;

 private:
  std::string folder_;
};

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_ROW_IMAGES_H_
