#include "common/io/file_util.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

const char* KindOfFile(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

absl::StatusOr<host::FileDescriptor> OpenFile(const std::string& path, int flags, int mode,
                                              absl::string_view purpose) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoStatus(path, absl::StrCat("open to ", purpose));
  return host::FileDescriptor(fd);
}

absl::StatusOr<host::FileDescriptor> OpenRegularFile(const std::string& path) {
  // Non-blocking: opening a FIFO otherwise waits for its writer. It has no effect on regular files.
  ASSIGN_OR_RETURN(host::FileDescriptor fd, OpenFile(path, O_RDONLY | O_NONBLOCK, 0, "read"));
  RETURN_IF_ERROR(CheckIsRegular(fd.get(), path));
  return fd;
}

absl::Status CheckIsRegular(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(path, "stat");
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": expected a regular file, found ", KindOfFile(info.st_mode)));
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(path, "write");
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status ErrnoStatus(const std::string& path, absl::string_view action) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": cannot ", action));
}

absl::Status AtPlace(absl::string_view place, absl::Status status) {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat(place, ": ", status.message()));
  status.ForEachPayload(
      [&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string TemporaryPathFor(const std::string& path) {
  static std::atomic<uint64_t> next{0};
  const std::string clean = WithoutTrailingSlashes(path);
  const size_t slash = clean.rfind('/');
  const std::string name = slash == std::string::npos ? clean : clean.substr(slash + 1);
  // Starts with a dot, so that readers that list a folder skip it.
  return absl::StrCat(ParentFolder(path), "/.", name, ".tmp-", ::getpid(), "-", next.fetch_add(1));
}

std::string ParentFolder(const std::string& path) {
  const std::string clean = WithoutTrailingSlashes(path);
  const size_t slash = clean.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : clean.substr(0, slash);
}

absl::Status SyncFolder(const std::string& folder) {
  ASSIGN_OR_RETURN(host::FileDescriptor fd, OpenFile(folder, O_RDONLY | O_DIRECTORY, 0, "sync"));
  // Some network file systems cannot sync a folder and say EINVAL; the rename is done all the same.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoStatus(folder, "sync the folder");
  return fd.Close(folder);
}

}  // namespace tandem::io
