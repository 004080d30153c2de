// What readers and writers of files share: opening, whole writes, errors that begin with the place.
#ifndef TANDEM_COMMON_IO_FILE_UTIL_H_
#define TANDEM_COMMON_IO_FILE_UTIL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/status/file_descriptor.h"

namespace tandem::io {

// open(2) with O_CLOEXEC. The message says what was attempted: `purpose` is "read", "write", ...
absl::StatusOr<FileDescriptor> OpenFile(const std::string& path, int flags, int mode,
                                        absl::string_view purpose);

// A regular file to read. Anything else is INVALID_ARGUMENT, and a FIFO without a writer does not
// make the caller wait.
absl::StatusOr<FileDescriptor> OpenRegularFile(const std::string& path);

// INVALID_ARGUMENT where the descriptor is no regular file: "PATH: expected a regular file, found a
// FIFO".
absl::Status CheckIsRegular(int fd, const std::string& path);

// Writes all of `bytes`, however many calls that takes.
absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path);

// The status for the present errno: "PATH: cannot ACTION: No space left on device".
absl::Status ErrnoStatus(const std::string& path, absl::string_view action);

// The same status with "PLACE: " before its message; OK stays OK. Payloads are kept.
absl::Status AtPlace(absl::string_view place, absl::Status status);

// A name beside `path` that no other call in any live process of this machine returns.
std::string TemporaryPathFor(const std::string& path);

// The same path without slashes at its end.
std::string WithoutTrailingSlashes(std::string path);

// The folder that holds `path`; "." for a bare name. Trailing slashes do not count.
std::string ParentFolder(const std::string& path);

// Makes the names in a folder durable.
absl::Status SyncFolder(const std::string& folder);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_FILE_UTIL_H_
