// Launches a kernel, and declares the shared memory of each block. tests/support/cuda_emulation.h
// has other definitions, which run a kernel on a CPU.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_LAUNCH_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_LAUNCH_CUH_

#ifndef TANDEM_LAUNCH
// kernel: in parentheses if it has template arguments. Then the kernel's arguments.
#define TANDEM_LAUNCH(kernel, grid, threads, shared_bytes, stream, ...) \
  kernel<<<grid, threads, shared_bytes, stream>>>(__VA_ARGS__)
#define TANDEM_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_LAUNCH_CUH_
