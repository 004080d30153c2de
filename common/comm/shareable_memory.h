// Memory that other processes of this host can map: what is sent from it through shared memory is
// copied once, by the receiver, from where it lies, and what is sent from it over a socket is not
// copied on this side at all.
//
//   at::Tensor weights = ShareableZeros(numel, at::kFloat);      // like at::zeros() in all else
//   if (auto range = FindShareable(data, size); range.has_value()) Hand(range->segment->file());
//
// Each tensor is a segment of its own, a sealed file without a name: it goes with the last process
// that maps it, however that ends. Processes to which its descriptor was handed can read it.
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
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// Tensors of fewer bytes are in ordinary memory: they are copied sooner than mapped.
inline constexpr int64_t kLeastShareableBytes = int64_t{64} << 10;

class ShareableSegment {
 public:
  // RESOURCE_EXHAUSTED where the system lends no such memory.
  static absl::StatusOr<std::shared_ptr<const ShareableSegment>> Create(int64_t size_bytes);
  ~ShareableSegment();
  ShareableSegment(const ShareableSegment&) = delete;
  ShareableSegment& operator=(const ShareableSegment&) = delete;

  uint64_t id() const { return id_; }  // of no other segment of this process's life
  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  const FileDescriptor& file() const { return file_; }

 private:
  ShareableSegment(uint64_t id, std::byte* data, int64_t size_bytes, FileDescriptor file)
      : id_(id), data_(data), size_bytes_(size_bytes), file_(std::move(file)) {}

  const uint64_t id_;
  std::byte* const data_;
  const int64_t size_bytes_;
  const FileDescriptor file_;
};

// A segment of another process, for reading. What the owner writes is seen here.
class MappedSegment {
 public:
  // INVALID_ARGUMENT where the file is no segment: one that cannot shrink under its readers.
  // RESOURCE_EXHAUSTED where it cannot be mapped.
  static absl::StatusOr<std::unique_ptr<const MappedSegment>> Map(const FileDescriptor& file);
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

// [numel], zeros, on the CPU: shareable where the system lends such memory, else ordinary. Throws
// as at::zeros().
at::Tensor ShareableZeros(int64_t numel, at::ScalarType dtype);

struct ShareableRange {
  std::shared_ptr<const ShareableSegment> segment;  // keeps file and memory
  int64_t offset = 0;
};
// Where the bytes lie within a tensor of ShareableZeros() of this process, if they do. Any thread.
std::optional<ShareableRange> FindShareable(const void* data, int64_t size_bytes);

// `count` is told of the bytes of each tensor that is made (more than 0) and freed (less); before
// it is set nobody is. Any thread calls it.
void CountShareable(std::function<void(int64_t)> count);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHAREABLE_MEMORY_H_
