#include "tools/tandem/dataset/data_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/tandem/dataset/row_reader.h"

namespace tandem::dataset {
namespace {

namespace fs = std::filesystem;

bool IsHidden(const fs::path& path) { return absl::StartsWith(path.filename().string(), "."); }

absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (IsHidden(it->path())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file(unreadable) && IsDataFile(it->path().string())) {
      files.push_back(it->path().string());
    }
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat(folder, ": cannot read: ", error.message()));
  }
  std::sort(files.begin(), files.end());
  if (!files.empty()) return files;
  return absl::NotFoundError(
      absl::StrCat(folder, ": expected data files (", DataFileEndings(), "), found none"));
}

std::vector<std::string> Matches(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> files;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);  // sorted
  }
  ::globfree(&found);
  std::erase_if(files, [](const std::string& file) {
    std::error_code error;
    return !fs::is_regular_file(file, error);
  });
  return files;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandDataFiles(const std::string& entry) {
  std::error_code error;
  if (fs::is_directory(entry, error)) return FilesIn(entry);
  if (fs::exists(entry, error)) return std::vector<std::string>{entry};
  std::vector<std::string> files = Matches(entry);
  if (!files.empty()) return files;
  return absl::NotFoundError(absl::StrCat(
      "no file ", entry, " (a file, a folder or a pattern; relative paths start at the working ",
      "directory)"));
}

}  // namespace tandem::dataset
