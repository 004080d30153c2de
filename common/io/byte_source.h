// ByteSource: bytes in order, from a file or a decompressor.
#ifndef TANDEM_COMMON_IO_BYTE_SOURCE_H_
#define TANDEM_COMMON_IO_BYTE_SOURCE_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/host/file_descriptor.h"

namespace tandem::io {

// Used by one thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Reads up to `size` bytes, at least one before the end; returns 0 at the end. Errors name the
  // file.
  virtual absl::StatusOr<size_t> Read(char* buffer, size_t size) = 0;
};

// The bytes of a file or pipe.
class FileSource : public ByteSource {
 public:
  static absl::StatusOr<FileSource> Open(const std::string& path);
  FileSource(host::FileDescriptor fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override;

 private:
  host::FileDescriptor fd_;
  std::string path_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_BYTE_SOURCE_H_
