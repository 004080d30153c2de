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

// Allocates memory aligned to at least 64 bytes; large blocks use large pages. Throws
// std::bad_alloc.
Buffer AllocateBytes(int64_t bytes);

// Returns this thread's own memory of at least `floats` floats, valid until its next call, which
// may move it. Its contents are undefined. Usually about a mebibyte; a thread keeps the largest
// size it ever requested.
float* ThreadScratch(int64_t floats);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_SCRATCH_H_
