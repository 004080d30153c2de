// CudaProcessor of a build with CUDA.
#include <ATen/cuda/CUDAContextLight.h>

#include <exception>

#include "absl/strings/str_cat.h"
#include "common/comm/run_with_deadline.h"
#include "common/model/processor.h"

namespace tandem::model {

absl::StatusOr<std::string> CudaProcessor(at::Device device) {
  try {
    const cudaDeviceProp* const gpu = at::cuda::getDeviceProperties(device.index());
    return absl::StrCat(gpu->name, ", compute capability ", gpu->major, ".", gpu->minor);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat(device.str(), " cannot be asked what it is: ", comm::FirstLine(error.what())));
  }
}

}  // namespace tandem::model
