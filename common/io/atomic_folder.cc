#include "common/io/atomic_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace fs = std::filesystem;

namespace {

bool IsModelFolder(const std::string& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder + "/config.json", error)) return false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") return true;
  }
  return false;
}

}  // namespace

const FolderKind kModelFolder = {"a model folder", IsModelFolder};

absl::Status CheckReplaceable(const std::string& path, const FolderKind* replaces) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(WithoutTrailingSlashes(path), error);
  if (status.type() == fs::file_type::not_found) return absl::OkStatus();
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot stat"));
  if (!fs::is_directory(status)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": expected no folder or an empty one, found a file or a link; choose another path"));
  }
  const fs::directory_iterator first(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot list"));
  if (first == fs::directory_iterator()) return absl::OkStatus();
  if (replaces == nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat(path,
                     ": expected no folder or an empty one, found files; remove the folder or "
                     "choose another path"));
  }
  if (replaces->is_one(path)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": expected ", replaces->name, " to replace, an empty folder or no folder; found ",
      first->path().filename().string(),
      " in a folder of another kind; move it away or choose another path"));
}

absl::StatusOr<AtomicFolder> AtomicFolder::Create(const std::string& path,
                                                  const FolderKind* replaces) {
  RETURN_IF_ERROR(CheckReplaceable(path, replaces));
  std::error_code error;
  const std::string parent = ParentFolder(path);
  fs::create_directories(parent, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat(parent, ": cannot make the folder"));
  }
  std::string temporary_path = TemporaryPathFor(path);
  fs::remove_all(temporary_path, error);  // left over from a dead process with the same id
  if (::mkdir(temporary_path.c_str(), 0777) != 0) {
    return ErrnoStatus(path, absl::StrCat("make ", temporary_path));
  }
  return AtomicFolder(WithoutTrailingSlashes(path), std::move(temporary_path), replaces);
}

AtomicFolder::AtomicFolder(std::string path, std::string temporary_path, const FolderKind* replaces)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), replaces_(replaces) {}

AtomicFolder::AtomicFolder(AtomicFolder&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, "")),
      replaces_(other.replaces_) {}

AtomicFolder::~AtomicFolder() {
  if (temporary_path_.empty()) return;
  std::error_code error;
  fs::remove_all(temporary_path_, error);
}

absl::Status AtomicFolder::Commit() {
  if (temporary_path_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": Commit() called twice"));
  }
  RETURN_IF_ERROR(SyncFolder(temporary_path_));
  const std::string parent = ParentFolder(path_);
  if (::rename(temporary_path_.c_str(), path_.c_str()) == 0) {
    temporary_path_.clear();
    return SyncFolder(parent);
  }
  if (errno != ENOTEMPTY && errno != EEXIST) return ErrnoStatus(path_, "rename to this name");
  RETURN_IF_ERROR(CheckReplaceable(path_, replaces_));  // it came while this one was filled
  // The old folder takes the temporary name, and the destructor removes it.
  if (::renameat2(AT_FDCWD, temporary_path_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) !=
      0) {
    if (errno != EINVAL && errno != ENOSYS) return ErrnoStatus(path_, "replace");
    // The file system cannot exchange: for a moment there is no folder, never a mixed one.
    const std::string aside = TemporaryPathFor(path_);
    if (::rename(path_.c_str(), aside.c_str()) != 0) return ErrnoStatus(path_, "move aside");
    if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
      absl::Status status = ErrnoStatus(path_, "replace");
      if (::rename(aside.c_str(), path_.c_str()) != 0) {
        return AtPlace(absl::StrCat("the old folder was moved to ", aside), std::move(status));
      }
      return status;
    }
    temporary_path_ = aside;
  }
  return SyncFolder(parent);
}

}  // namespace tandem::io
