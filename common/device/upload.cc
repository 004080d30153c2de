#include "common/device/upload.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace tandem::device {

at::Tensor Upload(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (!tensor.is_cpu()) return tensor.to(device);
  const at::NoGradGuard no_grad;
  const at::Tensor staged =
      at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
  staged.copy_(tensor);
  return staged.to(device, staged.scalar_type(), /*non_blocking=*/true);
}

}  // namespace tandem::device
