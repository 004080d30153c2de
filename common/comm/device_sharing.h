// DeviceSharing: lets one process read another's device memory, as CUDA IPC handles do.
//
//   ASSIGN_OR_RETURN(SharedBytes offer, sharing.Offer(bucket));             // owner
//   RETURN_IF_ERROR(sharing.Take(offer.handle, buffer, deadline));          // reader
#ifndef TANDEM_COMMON_COMM_DEVICE_SHARING_H_
#define TANDEM_COMMON_COMM_DEVICE_SHARING_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::comm {

struct SharedBytes {
  std::string handle;            // for the reader, at most kMaxHandleBytes
  std::shared_ptr<void> holder;  // keep it until the reader has taken the bytes
};
inline constexpr int64_t kMaxHandleBytes = 1000;

// One thread. Errors: INTERNAL with the device's error.
class DeviceSharing {
 public:
  virtual ~DeviceSharing() = default;

  // Identifies the device: equal in two processes whose tensors lie on one device.
  virtual std::string Place() const = 0;
  // Offers the tensor's bytes as they are once the work queued on the current stream is done. Do
  // not change them until the reader has taken them.
  virtual absl::StatusOr<SharedBytes> Offer(const at::Tensor& tensor) = 0;
  // Copies offered bytes into all of `to`, after the work queued on the current stream. Returns
  // when the copy is complete. Errors: DEADLINE_EXCEEDED.
  virtual absl::Status Take(const std::string& handle, const at::Tensor& to,
                            absl::Time deadline) = 0;
};

// Identifies a GPU among all GPUs of all hosts: "gpu " and its UUID in hex. UNAVAILABLE if CUDA cannot
// use it, UNIMPLEMENTED in a build without TANDEM_CUDA.
absl::StatusOr<std::string> IdOfGpu(c10::Device device);

// Shares memory of the current CUDA device. UNIMPLEMENTED in a build without TANDEM_CUDA.
absl::StatusOr<std::unique_ptr<DeviceSharing>> CreateCudaSharing();

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_DEVICE_SHARING_H_
