#include "common/device/device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <exception>

#include "absl/strings/str_cat.h"
#include "common/device/accelerator_device.h"
#include "common/device/cpu_device.h"

namespace tandem::device {

absl::StatusOr<std::shared_ptr<Device>> Device::Create(c10::Device device) {
  if (device.is_cpu()) return std::make_shared<CpuDevice>();
  if (!device.has_index()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected cpu or a device with an index, found ", device.str()));
  }
  if (!c10::impl::hasDeviceGuardImpl(device.type())) {
    return absl::UnimplementedError(
        absl::StrCat("the device is ", device.str(),
                     ", but this build supports CPUs only; configure it with -DTANDEM_CUDA=ON"));
  }
  try {
    return std::make_shared<AcceleratorDevice>(device);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(device.str(), ": ", error.what()));
  }
}

}  // namespace tandem::device
