// A file's bytes, mapped read-only.
#ifndef TANDEM_COMMON_IO_MAPPED_FILE_H_
#define TANDEM_COMMON_IO_MAPPED_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem::io {

// Owns the mapping; move-only; any number of threads may read. Costs address space, not memory.
// Renaming another file over the name is harmless, but truncating a mapped file in place kills the
// reader (SIGBUS): always replace files, never truncate them.
class MappedFile {
 public:
  // INVALID_ARGUMENT if the path is no regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  MappedFile(const std::byte* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  const std::byte* data_ = nullptr;  // null for an empty file
  size_t size_bytes_ = 0;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_MAPPED_FILE_H_
