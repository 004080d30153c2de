// Implements ProcessorOf() for builds with CUDA.
#include <ATen/cuda/CUDAContextLight.h>

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

}  // namespace tandem::model
