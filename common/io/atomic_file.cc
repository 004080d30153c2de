#include "common/io/atomic_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::io {

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  std::string temporary_path = TemporaryPathFor(path);
  // A file of this name can only be left over from a dead process whose pid was reused.
  ::unlink(temporary_path.c_str());
  absl::StatusOr<host::FileDescriptor> fd =
      OpenFile(temporary_path, O_WRONLY | O_CREAT | O_EXCL, 0666, "write");
  if (!fd.ok()) return AtPlace(path, fd.status());
  return AtomicFile(path, std::move(temporary_path), *std::move(fd));
}

AtomicFile::AtomicFile(std::string path, std::string temporary_path, host::FileDescriptor fd)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), fd_(std::move(fd)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, "")),
      fd_(std::move(other.fd_)),
      size_bytes_(other.size_bytes_),
      failed_(other.failed_) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    Discard();
    path_ = std::move(other.path_);
    temporary_path_ = std::exchange(other.temporary_path_, "");
    fd_ = std::move(other.fd_);
    size_bytes_ = other.size_bytes_;
    failed_ = other.failed_;
  }
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (temporary_path_.empty()) return;
  fd_ = host::FileDescriptor();
  ::unlink(temporary_path_.c_str());
  temporary_path_.clear();
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  if (temporary_path_.empty() || failed_) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": Append() after Commit() or after a failed write"));
  }
  if (absl::Status status = WriteAll(fd_.get(), bytes, path_); !status.ok()) {
    failed_ = true;
    return status;
  }
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status AtomicFile::Append(absl::Span<const std::byte> bytes) {
  return Append(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

absl::Status AtomicFile::Commit() {
  if (temporary_path_.empty() || failed_) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": Commit() called twice, or after a failed write"));
  }
  failed_ = true;  // until the rename is done
  if (::fsync(fd_.get()) != 0) return ErrnoStatus(path_, "sync");
  RETURN_IF_ERROR(fd_.Close(path_));
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(path_, absl::StrCat("rename ", temporary_path_, " to this name"));
  }
  temporary_path_.clear();
  return SyncFolder(ParentFolder(path_));
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes) {
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file.Append(bytes));
  return file.Commit();
}

}  // namespace tandem::io
