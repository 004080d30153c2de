// Memory that other processes on this host can map. A send from it through shared memory costs one
// copy, by the receiver; a send over a socket costs no copy on this side.
//
//   at::Tensor weights = ShareableZeros(numel, at::kFloat);      // otherwise like at::zeros()
//   if (auto range = FindShareable(data, size); range.has_value()) Hand(range->segment->file());
//
// Each tensor is its own segment, a sealed unnamed memory file; the system frees it when the last
// process that maps it ends. Processes that received its descriptor can read it.
#ifndef TANDEM_COMMON_COMM_SHAREABLE_MEMORY_H_
#define TANDEM_COMMON_COMM_SHAREABLE_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "common/host/file_descriptor.h"

namespace tandem::comm {

// Smaller tensors use ordinary memory: copying them is faster than mapping.
inline constexpr int64_t kLeastShareableBytes = int64_t{64} << 10;

class ShareableSegment {
 public:
  // RESOURCE_EXHAUSTED if the system has no such memory to give.
  static absl::StatusOr<std::shared_ptr<const ShareableSegment>> Create(int64_t size_bytes);
  ~ShareableSegment();
  ShareableSegment(const ShareableSegment&) = delete;
  ShareableSegment& operator=(const ShareableSegment&) = delete;

  uint64_t id() const { return id_; }  // never reused within this process
  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  const host::FileDescriptor& file() const { return file_; }

 private:
  ShareableSegment(uint64_t id, std::byte* data, int64_t size_bytes, host::FileDescriptor file)
      : id_(id), data_(data), size_bytes_(size_bytes), file_(std::move(file)) {}

  const uint64_t id_;
  std::byte* const data_;
  const int64_t size_bytes_;
  const host::FileDescriptor file_;
};

// Read-only mapping of another process's segment. The owner's writes are visible in it.
class MappedSegment {
 public:
  // INVALID_ARGUMENT if the file is not a segment, sealed against shrinking under its readers.
  // RESOURCE_EXHAUSTED if it cannot be mapped.
  static absl::StatusOr<std::unique_ptr<const MappedSegment>> Map(const host::FileDescriptor& file);
  ~MappedSegment();
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;

  const std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  MappedSegment(const std::byte* data, int64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  const std::byte* const data_;
  const int64_t size_bytes_;
};

// Returns a CPU tensor [numel] of zeros: shareable if the system has such memory to give, else
// ordinary. Throws like at::zeros().
at::Tensor ShareableZeros(int64_t numel, at::ScalarType dtype);

struct ShareableRange {
  std::shared_ptr<const ShareableSegment> segment;  // keeps file and memory
  int64_t offset = 0;
};
// Locates the bytes within a tensor from this process's ShareableZeros(); nullopt if they are not
// in one. Any thread.
std::optional<ShareableRange> FindShareable(const void* data, int64_t size_bytes);

// Sets a callback that receives the bytes of each tensor created (positive) and freed (negative)
// from now on. It may run on any thread.
void CountShareable(std::function<void(int64_t)> count);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHAREABLE_MEMORY_H_
