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

absl::StatusOr<AtomicFolder> AtomicFolder::Create(const std::string& path) {
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
  std::string target = path;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  return AtomicFolder(std::move(target), std::move(temporary_path));
}

AtomicFolder::AtomicFolder(std::string path, std::string temporary_path)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)) {}

AtomicFolder::AtomicFolder(AtomicFolder&& other) noexcept
    : path_(std::move(other.path_)), temporary_path_(std::exchange(other.temporary_path_, "")) {}

AtomicFolder::~AtomicFolder() {
  if (temporary_path_.empty()) return;
  std::error_code error;
  fs::remove_all(temporary_path_, error);
}

absl::Status AtomicFolder::Commit(IfPresent if_present) {
  if (temporary_path_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": committed twice"));
  }
  RETURN_IF_ERROR(SyncFolder(temporary_path_));
  const std::string parent = ParentFolder(path_);
  if (::rename(temporary_path_.c_str(), path_.c_str()) == 0) {
    temporary_path_.clear();
    return SyncFolder(parent);
  }
  if (errno != ENOTEMPTY && errno != EEXIST) return ErrnoStatus(path_, "rename to this name");
  if (if_present == kRefuse) {
    return absl::AlreadyExistsError(absl::StrCat(
        path_, ": expected no folder or an empty one, found files; remove it or choose another"));
  }
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
        return AtPlace(absl::StrCat("the old folder is now ", aside), std::move(status));
      }
      return status;
    }
    temporary_path_ = aside;
  }
  return SyncFolder(parent);
}

}  // namespace tandem::io
