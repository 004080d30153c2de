// Upload(tensor, device): copies a host tensor to a device without a wait of the host.
#ifndef TANDEM_COMMON_DEVICE_UPLOAD_H_
#define TANDEM_COMMON_DEVICE_UPLOAD_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace tandem::device {

// The tensor itself if it is on `device`. Otherwise its contents as of this call, copied through
// page-locked memory on the current stream: an ordinary copy would wait for the work that the stream
// has before it. Undefined tensors stay so. Throws like ATen.
at::Tensor Upload(const at::Tensor& tensor, c10::Device device);

}  // namespace tandem::device

#endif  // TANDEM_COMMON_DEVICE_UPLOAD_H_
