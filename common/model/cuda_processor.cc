// Implements device_processor.h for builds with CUDA.
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <exception>

#include "absl/strings/str_cat.h"
#include "common/comm/run_with_deadline.h"
#include "common/model/device_processor.h"
#include "common/model/kernels/instruction_sets.h"

namespace tandem::model {

absl::StatusOr<std::string> ProcessorOf(at::Device device) {
  if (device.is_cpu()) return kernels::InstructionSets();
  try {
    const cudaDeviceProp* const gpu = at::cuda::getDeviceProperties(device.index());
    return absl::StrCat(gpu->name, ", compute capability ", gpu->major, ".", gpu->minor);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat(device.str(), " cannot be queried: ", comm::FirstLine(error.what())));
  }
}

bool HasGroupedProducts(at::Device device) {
  if (!device.is_cuda()) return false;
  const int major = at::cuda::getDeviceProperties(device.index())->major;
  return major == 9 || major == 10;
}

absl::StatusOr<int64_t> FreeMemory(at::Device device) {
  if (!device.is_cuda()) {
    return absl::UnimplementedError(absl::StrCat("no free memory is known of ", device.str()));
  }
  const c10::cuda::CUDAGuard guard(device);
  size_t free = 0;
  size_t total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat(device.str(), ": free memory: ", cudaGetErrorString(error)));
  }
  return static_cast<int64_t>(free);
}

host::GpuFacts GpuFactsOfProcess() {
  host::GpuFacts facts = host::ReadGpuFacts();
  facts.gpus.clear();
  try {
    // Throws where device_count() would say 0: without a driver, or with one that is too old.
    const c10::DeviceIndex count = c10::cuda::device_count_ensure_non_zero();
    for (c10::DeviceIndex index = 0; index < count; ++index) {
      const cudaDeviceProp* const gpu = at::cuda::getDeviceProperties(index);
      facts.gpus.push_back({.id = absl::StrCat(static_cast<int>(index)),
                            .name = gpu->name,
                            .major = gpu->major,
                            .minor = gpu->minor});
    }
  } catch (const std::exception& error) {
    facts.problem = comm::FirstLine(error.what());
  }
  return facts;
}

}  // namespace tandem::model
