#include "common/model/kernels/scratch.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tandem::model::kernels {

void FreeMemory::operator()(void* data) const { std::free(data); }

Buffer AllocateBytes(int64_t bytes) {
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + 63) / 64 * 64;
  void* const data = std::aligned_alloc(64, static_cast<size_t>(rounded));
  if (data == nullptr) throw std::bad_alloc();
  return Buffer(data);
}

float* ThreadScratch(int64_t floats) {
  thread_local Buffer buffer;
  thread_local int64_t capacity = 0;
  if (floats > capacity) {
    buffer.reset();
    buffer = AllocateBytes(floats * static_cast<int64_t>(sizeof(float)));
    capacity = floats;
  }
  return static_cast<float*>(buffer.get());
}

}  // namespace tandem::model::kernels
