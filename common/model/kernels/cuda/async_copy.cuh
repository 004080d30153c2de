// Copies from global to shared memory that run while the thread computes. Where the device has none,
// they are done at once.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_ASYNC_COPY_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_ASYNC_COPY_CUH_

#include "common/model/kernels/cuda/device_math.cuh"

namespace tandem::model::cuda {

// Copies 16 bytes; both are aligned to that.
__device__ inline void CopyAsync(void* shared, const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(global) : "memory");
#else
  using Piece = Pack<float, 4>;
  *static_cast<Piece*>(shared) = *static_cast<const Piece*>(global);
#endif
}

// Waits for the copies of this thread; those of others are there after a barrier behind it.
__device__ inline void AwaitCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;\n" ::: "memory");
#endif
}

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_ASYNC_COPY_CUH_
