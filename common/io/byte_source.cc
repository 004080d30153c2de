#include "common/io/byte_source.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::io {

absl::StatusOr<FileSource> FileSource::Open(const std::string& path) {
  ASSIGN_OR_RETURN(host::FileDescriptor fd, OpenFile(path, O_RDONLY, 0, "read"));
  return FileSource(std::move(fd), path);
}

absl::StatusOr<size_t> FileSource::Read(char* buffer, size_t size) {
  ssize_t count;
  do {
    count = ::read(fd_.get(), buffer, size);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return ErrnoStatus(path_, "read");
  return static_cast<size_t>(count);
}

}  // namespace tandem::io
