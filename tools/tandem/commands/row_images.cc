#include "tools/tandem/commands/row_images.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/images/image_limits.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::commands {

RowImages::RowImages(const std::string& input, ImageFetching fetching)
    : fetching_(std::move(fetching)) {
  std::error_code error;
  folder_ = std::filesystem::is_regular_file(input, error) ? io::ParentFolder(input) : ".";
}

absl::StatusOr<std::vector<ImageFile>> RowImages::Read(const io::JsonFields& row) const {
  std::vector<ImageFile> files;
  if (!row.Has("images")) return files;
  ASSIGN_OR_RETURN(const std::vector<std::string> sources, row.StringList("images"));
  for (size_t i = 0; i < sources.size(); ++i) {
    absl::StatusOr<images::ImageBytes> read = ReadSource(sources[i]);
    if (!read.ok()) {
      return io::AtPlace(absl::StrCat(row.place(), ": images[", i, "]"), read.status());
    }
    files.push_back(std::make_shared<const std::string>(std::move(read->bytes)));
  }
  return files;
}

absl::StatusOr<images::ImageBytes> RowImages::ReadSource(const std::string& source) const {
  if (fetching_.fetcher == nullptr || !images::IsWebUrl(source)) {
    return images::ReadImageSource(source, folder_, images::ImageLimits());
  }
  ASSIGN_OR_RETURN(std::string bytes, fetching_.fetcher->Fetch(source, fetching_.interrupted));
  return images::ImageBytes{std::move(bytes), source.substr(0, source.find('?'))};
}

}  // namespace tandem::commands
