// Launches a kernel, and declares the shared memory of each block. tests/support/cuda_emulation.h
// has other definitions, which run a kernel on a CPU.
//
// A kernel that is launched early begins while the kernel before it on the stream still runs, on
// GPUs that can (compute capability 9.0 and newer): most kernels of a decode step last a few
// microseconds, of which starting is a large part. It calls AwaitPredecessor() in every thread,
// before which it touches nothing that an earlier kernel writes or reads; constants, such as
// weights, it may read at once.
#ifndef TANDEM_COMMON_DEVICE_LAUNCH_CUH_
#define TANDEM_COMMON_DEVICE_LAUNCH_CUH_

#include <cuda_runtime_api.h>

#include <cstddef>

#ifndef TANDEM_LAUNCH
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
// kernel: in parentheses if it has template arguments. Then the kernel's arguments.
#define TANDEM_LAUNCH(kernel, grid, threads, shared_bytes, stream, ...) \
  kernel<<<grid, threads, shared_bytes, stream>>>(__VA_ARGS__)
#define TANDEM_LAUNCH_EARLY(kernel, grid, threads, shared_bytes, stream, ...) \
  ::tandem::device::LaunchEarly(kernel, grid, threads, shared_bytes, stream, __VA_ARGS__)
#define TANDEM_DYNAMIC_SHARED(type, name) extern __shared__ type name[]

namespace tandem::device {

// Compiled for the same architectures as the kernels around it.
static __global__ void ArchitectureProbe() {}

// Whether the current device begins kernels early, and runs code of ours that then waits: code for an
// older architecture does not.
inline bool LaunchesEarly() {
  constexpr int kMostDevices = 64;
  static std::atomic<int8_t> known[kMostDevices];  // 1: yes, -1: no
  int device = 0;
  cudaGetDevice(&device);
  if (device < kMostDevices && known[device] != 0) return known[device] > 0;
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaFuncAttributes code{};
  const bool early = major >= 9 &&
                     cudaFuncGetAttributes(&code, ArchitectureProbe) == cudaSuccess &&
                     code.ptxVersion >= 90;
  if (device < kMostDevices) known[device] = early ? 1 : -1;
  return early;
}

// Errors are those of cudaGetLastError() afterwards.
template <typename Args>
void LaunchEarly(void (*kernel)(Args), dim3 grid, dim3 threads, size_t shared_bytes,
                 cudaStream_t stream, const Args& args) {
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = LaunchesEarly() ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace tandem::device
#endif

namespace tandem::device {

// Waits until all earlier kernels are done and their writes can be seen; lets the next kernel begin,
// which then waits here itself.
__device__ inline void AwaitPredecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace tandem::device

#endif  // TANDEM_COMMON_DEVICE_LAUNCH_CUH_
