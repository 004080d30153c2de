// A file's bytes, mapped read-only.
#ifndef TANDEM_COMMON_IO_MAPPED_FILE_H_
#define TANDEM_COMMON_IO_MAPPED_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem::io {

// Owns the mapping; move-only; any number of threads may read. Costs address space, not memory. The
// mapping is of the file as it was: a rename over its name does no harm, but a file that is cut
// short in place while mapped kills the reader (SIGBUS), so files here are only ever replaced.
class MappedFile {
 public:
  // INVALID_ARGUMENT where the path is no regular file.
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
