// CreateCudaOps() for builds without CUDA.
#include "absl/strings/str_cat.h"
#include "common/weights/device_ops.h"

namespace tandem::weights {

absl::StatusOr<std::unique_ptr<DeviceOps>> CreateCudaOps(at::Device device) {
  return absl::UnimplementedError(absl::StrCat("weights on ", device.str(),
                                               ": this build updates weights on CPUs only; "
                                               "configure it with -DTANDEM_CUDA=ON"));
}

}  // namespace tandem::weights
