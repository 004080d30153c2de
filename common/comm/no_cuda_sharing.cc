// IdOfGpu() and CreateCudaSharing() for builds without CUDA.
#include "common/comm/device_sharing.h"

namespace tandem::comm {

absl::StatusOr<std::string> IdOfGpu(c10::Device) {
  return absl::UnimplementedError(
      "this build has no GPU support; configure it with -DTANDEM_CUDA=ON");
}

absl::StatusOr<std::unique_ptr<DeviceSharing>> CreateCudaSharing() {
  return absl::UnimplementedError(
      "this build cannot share device memory; configure it with -DTANDEM_CUDA=ON");
}

}  // namespace tandem::comm
