#include "tools/tandem/dataset/data_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/dataset/row_reader.h"

namespace tandem::dataset {
namespace {

namespace fs = std::filesystem;

// Files that datasets.save_to_disk writes beside the rows, to describe them.
bool IsDescription(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "dataset_info.json" || name == "state.json" || name == "dataset_dict.json";
}

bool IsHidden(const fs::path& path) { return absl::StartsWith(path.filename().string(), "."); }

absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (IsHidden(it->path())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file(unreadable) && IsDataFile(it->path().string()) &&
               !IsDescription(it->path())) {
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

// Files and folders, sorted.
std::vector<std::string> Matches(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return paths;
}

// A pattern that matches data files means these. Otherwise, those in the folders that it matches:
// `data/*` beside data/old means what stands in data, `shards/*` what stands in each shard.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::vector<std::string>& matches) {
  std::vector<std::string> files;
  std::vector<std::string> folders;
  for (const std::string& match : matches) {
    std::error_code error;
    if (fs::is_directory(match, error)) {
      folders.push_back(match);
    } else if (fs::is_regular_file(match, error) && !IsDescription(match)) {
      files.push_back(match);
    }
  }
  if (!folders.empty()) {
    std::erase_if(files, [](const std::string& file) { return !IsDataFile(file); });
  }
  if (!files.empty()) return files;
  for (const std::string& folder : folders) {
    ASSIGN_OR_RETURN(const std::vector<std::string> inner, FilesIn(folder));
    files.insert(files.end(), inner.begin(), inner.end());
  }
  return files;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandDataFiles(const std::string& entry) {
  std::error_code error;
  if (fs::is_directory(entry, error)) return FilesIn(entry);
  if (fs::exists(entry, error)) return std::vector<std::string>{entry};
  ASSIGN_OR_RETURN(std::vector<std::string> files, FilesOf(Matches(entry)));
  if (!files.empty()) return files;
  return absl::NotFoundError(absl::StrCat(
      "no file ", entry, " (a file, a folder or a pattern; relative paths start at the working ",
      "directory)"));
}

}  // namespace tandem::dataset
