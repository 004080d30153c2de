// Helpers for readers and writers of files: opening, complete writes, errors that begin with the
// place.
#ifndef TANDEM_COMMON_IO_FILE_UTIL_H_
#define TANDEM_COMMON_IO_FILE_UTIL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/host/file_descriptor.h"

namespace tandem::io {

// open(2) with O_CLOEXEC. `purpose` is "read", "write", ... for the error message.
absl::StatusOr<host::FileDescriptor> OpenFile(const std::string& path, int flags, int mode,
                                              absl::string_view purpose);

// Opens a regular file to read. INVALID_ARGUMENT for anything else; never blocks on a FIFO without
// a writer.
absl::StatusOr<host::FileDescriptor> OpenRegularFile(const std::string& path);

// INVALID_ARGUMENT if the descriptor is no regular file: "PATH: expected a regular file, found a
// FIFO".
absl::Status CheckIsRegular(int fd, const std::string& path);

// Writes all of `bytes`, in as many calls as that takes.
absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path);

// Status for the current errno: "PATH: cannot ACTION: No space left on device".
absl::Status ErrnoStatus(const std::string& path, absl::string_view action);

// Prefixes the message with "PLACE: "; OK stays OK. Keeps payloads.
absl::Status AtPlace(absl::string_view place, absl::Status status);

// Returns a name beside `path` that no other call in any live process of this machine returns.
std::string TemporaryPathFor(const std::string& path);

// Returns the path without trailing slashes.
std::string WithoutTrailingSlashes(std::string path);

// Returns the folder that holds `path`; "." for a bare name. Ignores trailing slashes.
std::string ParentFolder(const std::string& path);

// Makes the folder's directory entries durable.
absl::Status SyncFolder(const std::string& folder);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_FILE_UTIL_H_
