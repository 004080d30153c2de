#include "common/io/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::io {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(host::FileDescriptor fd, OpenRegularFile(path));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(path, "stat");
  if (info.st_size == 0) return MappedFile(nullptr, 0);
  const size_t size_bytes = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus(path, absl::StrCat("map ", size_bytes, " bytes"));
  return MappedFile(static_cast<const std::byte*>(data), size_bytes);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

}  // namespace tandem::io
