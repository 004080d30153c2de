#include "common/model/kernels/scratch.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "common/model/kernels/large_pages.h"

namespace tandem::model::kernels {
namespace {

// Rounds sizes from here on up to a whole number of large pages. The padding is then less than a
// fourth of the block.
constexpr int64_t kLargeBytes = int64_t{8} << 20;

}  // namespace

void FreeMemory::operator()(void* data) const { std::free(data); }

Buffer AllocateBytes(int64_t bytes) {
  const size_t alignment = bytes >= kLargeBytes ? kLargePageBytes : 64;
  const size_t rounded =
      (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + alignment - 1) / alignment * alignment;
  void* const data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
  if (rounded >= kLargePageBytes) WantLargePages(data, rounded);
  return Buffer(data);
}

float* ThreadScratch(int64_t floats) {
  thread_local Buffer buffer;
  thread_local int64_t capacity = 0;
  if (floats > capacity) {
    // Frees first: the contents need not survive, and both blocks at once would double the peak.
    buffer.reset();
    buffer = AllocateBytes(floats * static_cast<int64_t>(sizeof(float)));
    capacity = floats;
  }
  return static_cast<float*>(buffer.get());
}

}  // namespace tandem::model::kernels
