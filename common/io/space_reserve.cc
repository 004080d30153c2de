#include "common/io/space_reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

absl::StatusOr<int64_t> FreeBytes(const std::string& folder) {
  struct statvfs info;
  if (::statvfs(folder.c_str(), &info) != 0) return ErrnoStatus(folder, "query its free space");
  int64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<int64_t>(info.f_bavail),
                             static_cast<int64_t>(info.f_frsize), &bytes)) {
    return INT64_MAX;
  }
  return bytes;
}

// Opens an unnamed file.
absl::StatusOr<host::FileDescriptor> OpenNameless(const std::string& folder) {
  absl::StatusOr<host::FileDescriptor> fd = OpenFile(folder, O_TMPFILE | O_WRONLY, 0600, "write");
  if (fd.ok()) return fd;
  const std::string path = TemporaryPathFor(absl::StrCat(folder, "/reserve"));
  ASSIGN_OR_RETURN(fd, OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0600, "write"));
  if (::unlink(path.c_str()) != 0) return ErrnoStatus(path, "unlink");
  return fd;
}

// Whether a file may not become so large: allocating would end the process (SIGXFSZ).
bool ExceedsFileLimit(int64_t size_bytes) {
  struct rlimit limit;
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         static_cast<rlim_t>(size_bytes) > limit.rlim_cur;
}

}  // namespace

absl::StatusOr<SpaceReserve> SpaceReserve::Take(const std::string& folder, int64_t size_bytes,
                                                const std::string& purpose) {
  SpaceReserve out(folder, size_bytes, purpose);
  // Check first: filling the disk to find out would fail others' writes meanwhile.
  RETURN_IF_ERROR(out.CheckFree());
  if (size_bytes <= 0 || ExceedsFileLimit(size_bytes)) return out;
  ASSIGN_OR_RETURN(host::FileDescriptor file, OpenNameless(folder));
  int result;
  do {
    result = ::fallocate(file.get(), 0, 0, size_bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    out.file_ = std::move(file);
  } else if (errno == ENOSPC || errno == EDQUOT) {
    file = host::FileDescriptor();  // what it has got is free before we say how much is
    return out.Lacking();
  }
  return out;
}

absl::Status SpaceReserve::Check() const { return is_held() ? absl::OkStatus() : CheckFree(); }

absl::Status SpaceReserve::CheckFree() const {
  ASSIGN_OR_RETURN(const int64_t free_bytes, FreeBytes(folder_));
  return size_bytes_ <= free_bytes ? absl::OkStatus() : Lacking();
}

absl::Status SpaceReserve::Lacking() const {
  ASSIGN_OR_RETURN(const int64_t free_bytes, FreeBytes(folder_));
  return absl::ResourceExhaustedError(
      absl::StrCat(folder_, ": ", purpose_, " needs ", size_bytes_, " bytes and ", free_bytes,
                   " are available to this user; free some space, raise the quota, or set run_dir "
                   "to another disk"));
}

}  // namespace tandem::io
