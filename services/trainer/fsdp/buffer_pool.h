// BufferPool: reuses flat device buffers, so that no step faults pages in or calls an allocator.
// Units of one size share their buffers. One thread.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_BUFFER_POOL_H_
#define TANDEM_SERVICES_TRAINER_FSDP_BUFFER_POOL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/device/device.h"

namespace tandem::trainer {

// What its events mark.
inline constexpr char kFreshBuffer[] = "compute before a fresh buffer";
inline constexpr char kReleasedBuffer[] = "compute before a buffer's release";

class BufferPool {
 public:
  struct Buffer {
    at::Tensor tensor;  // [numel], owns its memory
    // The last compute that may have used the buffer's memory. A collective that writes the buffer
    // must wait for it; compute itself runs in order.
    std::shared_ptr<device::Event> last_use;
  };

  // `device` outlives the pool.
  explicit BufferPool(device::Device& device) : device_(device) {}

  // Contents are undefined. Throws c10::OutOfMemoryError.
  Buffer Acquire(int64_t numel, at::ScalarType dtype);
  // For reuse after the compute issued so far. Wait for collectives on the tensor first.
  void Release(at::Tensor tensor);

  at::Device device() const { return device_.device(); }
  // Bytes of all buffers, in use or free: the peak in use.
  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  device::Device& device_;
  std::vector<Buffer> free_;
  int64_t allocated_bytes_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_BUFFER_POOL_H_
