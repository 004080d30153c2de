#include "common/device/cpu_device.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <exception>

#include "absl/strings/str_cat.h"

namespace tandem::device {

absl::StatusOr<at::Tensor> CpuDevice::Buffer(int64_t size_bytes) {
  try {
    return at::empty({size_bytes}, at::kByte);
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate a buffer of ", size_bytes, " bytes"));
  }
}

absl::Status CpuDevice::Transfer(const at::Tensor& from, const at::Tensor& to) {
  const at::NoGradGuard no_grad;
  to.copy_(from);
  return absl::OkStatus();
}

}  // namespace tandem::device
