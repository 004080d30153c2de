// FileDescriptor: owns a file descriptor and closes it on destruction.
//
//   FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
//   if (!fd.is_open()) return absl::ErrnoToStatus(errno, path);
//   ...
//   return fd.Close(path);   // or let it close with the scope, if errors of close(2) do not matter
#ifndef TANDEM_COMMON_HOST_FILE_DESCRIPTOR_H_
#define TANDEM_COMMON_HOST_FILE_DESCRIPTOR_H_

#include <errno.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::host {

// Move-only. One thread at a time.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Gives up ownership: the caller must close the descriptor.
  int Release() { return std::exchange(fd_, -1); }

  // Closes now and reports what close(2) says; `path` is for the message.
  absl::Status Close(const std::string& path) {
    if (fd_ < 0) return absl::OkStatus();
    // The descriptor is gone whatever close(2) returns, EINTR included (Linux).
    if (::close(std::exchange(fd_, -1)) == 0 || errno == EINTR) return absl::OkStatus();
    const int error = errno;
    return absl::ErrnoToStatus(error, absl::StrCat(path, ": cannot close"));
  }

 private:
  int fd_ = -1;
};

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_FILE_DESCRIPTOR_H_
