// What the files of this folder share: descriptors that close themselves, whole writes, errors that
// begin with the place. Not for use outside common/io.
#ifndef TANDEM_COMMON_IO_FILE_UTIL_H_
#define TANDEM_COMMON_IO_FILE_UTIL_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::io {

// Owns a file descriptor; move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

  // Closes now and reports what close(2) says; `path` is for the message.
  absl::Status Close(const std::string& path);

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC. The message says what was attempted: `purpose` is "read", "write", ...
absl::StatusOr<FileDescriptor> OpenFile(const std::string& path, int flags, int mode,
                                        absl::string_view purpose);

// Writes all of `bytes`, however many calls that takes.
absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path);

// The status for the present errno: "PATH: cannot ACTION: No space left on device".
absl::Status ErrnoStatus(const std::string& path, absl::string_view action);

// The same status with "PLACE: " before its message; OK stays OK. Payloads are kept.
absl::Status AtPlace(absl::string_view place, absl::Status status);

// A name beside `path` that no other call in any live process of this machine returns.
std::string TemporaryPathFor(const std::string& path);

// The folder that holds `path`; "." for a bare name. Trailing slashes do not count.
std::string ParentFolder(const std::string& path);

// Makes the names in a folder durable.
absl::Status SyncFolder(const std::string& folder);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_FILE_UTIL_H_
