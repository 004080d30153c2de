#include "absl/strings/str_cat.h"
#include "services/trainer/fsdp/device_streams.h"

namespace tandem::trainer {

absl::StatusOr<std::unique_ptr<DeviceStreams>> CreateCudaStreams(c10::Device device) {
  return absl::UnimplementedError(
      absl::StrCat("the model's device is ", device.str(),
                   ", but this build supports CPUs only; configure it with -DTANDEM_CUDA=ON"));
}

}  // namespace tandem::trainer
