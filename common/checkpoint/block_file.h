// A file with a digest per block: reading a part verifies only the blocks of that part.
#ifndef TANDEM_COMMON_CHECKPOINT_BLOCK_FILE_H_
#define TANDEM_COMMON_CHECKPOINT_BLOCK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/host/file_descriptor.h"
#include "common/io/atomic_file.h"

namespace tandem::checkpoint {

inline constexpr int64_t kBlockBytes = int64_t{1} << 20;

// The size and digests of a file, which its index stores.
struct BlockDigests {
  int64_t size_bytes = 0;
  int64_t block_bytes = kBlockBytes;
  std::vector<std::string> digests;  // one per block; the last one may be shorter
};

// Owned and used by one thread. The file appears atomically at Commit(); a writer destroyed earlier
// leaves nothing.
class BlockFileWriter {
 public:
  static absl::StatusOr<BlockFileWriter> Create(const std::string& path);

  // RESOURCE_EXHAUSTED if the disk is full.
  absl::Status Append(absl::Span<const std::byte> bytes);
  int64_t size_bytes() const { return digests_.size_bytes; }
  absl::StatusOr<BlockDigests> Commit();

 private:
  explicit BlockFileWriter(io::AtomicFile file) : file_(std::move(file)) {}
  absl::Status FlushBlock();

  io::AtomicFile file_;
  std::string block_;  // bytes not written yet, less than a block
  BlockDigests digests_;
};

// Single-threaded. Memory: one block.
class BlockFileReader {
 public:
  // NOT_FOUND; INVALID_ARGUMENT if it is no regular file; DATA_LOSS if its size differs from that
  // in the digests.
  static absl::StatusOr<BlockFileReader> Open(const std::string& path, BlockDigests digests);

  // Reads bytes [offset, offset + out.size()). DATA_LOSS names the file and the damaged block.
  absl::Status Read(int64_t offset, absl::Span<std::byte> out);

  const std::string& path() const { return path_; }

 private:
  BlockFileReader(std::string path, host::FileDescriptor fd, BlockDigests digests)
      : path_(std::move(path)), fd_(std::move(fd)), digests_(std::move(digests)) {}
  absl::Status LoadBlock(int64_t index);

  std::string path_;
  host::FileDescriptor fd_;
  BlockDigests digests_;
  std::string block_;
  int64_t loaded_ = -1;  // index of the block in block_
};

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_BLOCK_FILE_H_
