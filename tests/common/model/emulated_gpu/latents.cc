// Like model.cc beside it: absorbed heads, compiled so that tensors of the CPU count as a GPU's.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "common/model/cpu_dispatch.h"
#include "common/model/cuda_tensor.h"
#include "common/model/step_memory.h"
#include "common/model/worker_pool.h"

namespace c10::cuda {
struct EmulatedLatentsGuard {
  explicit EmulatedLatentsGuard(at::Device) {}
};
}  // namespace c10::cuda

#define is_cpu() is_meta()
#define CUDAGuard EmulatedLatentsGuard
#define CurrentStream(device) nullptr
#undef C10_CUDA_CHECK
#define C10_CUDA_CHECK(call) TORCH_CHECK((call) == cudaSuccess, #call)
// After them.
#include "common/model/absorbed_heads.cc"
#include "common/model/cuda_latents.cc"
