#include "services/trainer/fsdp/buffer_pool.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace tandem::trainer {

BufferPool::Buffer BufferPool::Acquire(int64_t numel, at::ScalarType dtype) {
  // The latest that fits: its bytes are the likeliest to be in a cache.
  const auto found = std::find_if(free_.rbegin(), free_.rend(), [&](const Buffer& buffer) {
    return buffer.tensor.numel() == numel && buffer.tensor.scalar_type() == dtype;
  });
  if (found == free_.rend()) {
    Buffer fresh;
    fresh.tensor = at::empty({numel}, at::TensorOptions(dtype).device(device_.device()));
    // A device's allocator hands out memory that compute issued earlier may still use: it relies on
    // the order of the compute stream, which does not bind a collective on the side stream.
    fresh.last_use = device_.Record(kFreshBuffer);
    allocated_bytes_ += static_cast<int64_t>(fresh.tensor.nbytes());
    return fresh;
  }
  Buffer buffer = std::move(*found);
  free_.erase(std::next(found).base());
  return buffer;
}

void BufferPool::Release(at::Tensor tensor) {
  free_.push_back({std::move(tensor), device_.Record(kReleasedBuffer)});
}

}  // namespace tandem::trainer
