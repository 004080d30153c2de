#include "absl/strings/str_cat.h"
#include "services/trainer/fsdp/device_streams.h"

namespace tandem::trainer {

absl::StatusOr<std::unique_ptr<DeviceStreams>> CreateCudaStreams(c10::Device device) {
  return absl::UnimplementedError(
      absl::StrCat("the model was to live on ", device.str(),
                   ", and this build computes on CPUs only; configure it with -DTANDEM_CUDA=ON"));
}

}  // namespace tandem::trainer
