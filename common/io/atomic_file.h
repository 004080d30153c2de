// Writes files atomically: bytes go to a temporary file in the same folder, which is synced and
// then renamed over the target. A crash leaves the old file, or none, and perhaps a temporary one
// whose name begins with a dot.
//
//   RETURN_IF_ERROR(io::WriteFileAtomically(path, text));
//
//   ASSIGN_OR_RETURN(io::AtomicFile file, io::AtomicFile::Create(path));
//   for (const Piece& piece : pieces) RETURN_IF_ERROR(file.Append(piece.bytes));
//   RETURN_IF_ERROR(file.Commit());
#ifndef TANDEM_COMMON_IO_ATOMIC_FILE_H_
#define TANDEM_COMMON_IO_ATOMIC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/file_util.h"

namespace tandem::io {

// A file being written. Its creator owns it and uses it from one thread at a time. If destroyed
// before Commit(), it removes its temporary file and leaves the target as it was.
class AtomicFile {
 public:
  // The folder must exist. The target may exist; Commit() replaces it.
  static absl::StatusOr<AtomicFile> Create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // After an error the file can only be discarded; Commit() refuses it.
  absl::Status Append(absl::string_view bytes);
  absl::Status Append(absl::Span<const std::byte> bytes);

  // After success the target durably holds all appended bytes. After failure it is unchanged, or,
  // if only the folder's sync failed, replaced but perhaps not durable. FAILED_PRECONDITION when
  // called twice or after a failed Append().
  absl::Status Commit();

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  AtomicFile(std::string path, std::string temporary_path, host::FileDescriptor fd);
  void Discard();

  std::string path_;
  std::string temporary_path_;  // empty once committed or discarded
  host::FileDescriptor fd_;
  int64_t size_bytes_ = 0;
  bool failed_ = false;
};

absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_ATOMIC_FILE_H_
