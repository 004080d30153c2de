// Working memory of the kernels.
#ifndef TANDEM_COMMON_MODEL_KERNELS_SCRATCH_H_
#define TANDEM_COMMON_MODEL_KERNELS_SCRATCH_H_

#include <cstdint>
#include <memory>

namespace tandem::model::kernels {

struct FreeMemory {
  void operator()(void* data) const;
};
using Buffer = std::unique_ptr<void, FreeMemory>;

// Aligned to 64 bytes at least; in large pages where it is large. Throws std::bad_alloc.
Buffer AllocateBytes(int64_t bytes);

// This thread's own memory of at least so many floats, kept for its next call, which may move it.
// Its contents are undefined. Usually around a mebibyte; a thread keeps the most that it ever asked
// for.
float* ThreadScratch(int64_t floats);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_SCRATCH_H_
