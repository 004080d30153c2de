// DeviceOps: the byte operations of a weight update on one device: buffers, copies, casts and
// digests on the CPU or an accelerator. Both ends of an update use only this interface. Memory,
// streams and transfers are those of device::Device; an implementation adds the kernels.
//
//   ASSIGN_OR_RETURN(auto ops, CreateDeviceOps(master.device()));
//   const auto entered = ops->Enter();
//   ASSIGN_OR_RETURN(at::Tensor bucket, ops->Buffer(bytes));
//   RETURN_IF_ERROR(ops->Cast(WireElement::kBfloat16, {{from, to, 4096}}));
//
// Threads: one at a time. Errors: RESOURCE_EXHAUSTED if allocation fails, INTERNAL for device
// errors, with the operation.
#ifndef TANDEM_COMMON_WEIGHTS_DEVICE_OPS_H_
#define TANDEM_COMMON_WEIGHTS_DEVICE_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device/device.h"
#include "common/weights/additive_digest.h"
#include "common/weights/weight_runs.h"

namespace tandem::weights {

// What the ops' events mark.
inline constexpr char kWorkBeforeOps[] = "work before the weight operations";
inline constexpr char kWeightOps[] = "weight operations";

class DeviceOps {
 public:
  // Throws if the device makes no stream.
  explicit DeviceOps(std::shared_ptr<device::Device> device)
      : device_(std::move(device)), stream_(device_->NewStream(device::Priority::kNormal)) {}
  virtual ~DeviceOps() = default;

  at::Device device() const { return device_->device(); }
  // True if this process's CPU code can read the device's memory.
  virtual bool on_host() const { return device_->on_host(); }

  // While the result lives, work that this thread queues on the device, including group operations,
  // runs on the ops' own stream: after the work queued before, and before the work queued later.
  // Null if the device has no queue.
  std::shared_ptr<void> Enter();

  // uint8 [size_bytes], contents undefined.
  absl::StatusOr<at::Tensor> Buffer(int64_t size_bytes) { return device_->Buffer(size_bytes); }
  // The same in host memory that the device copies from and to at full speed (page-locked).
  absl::StatusOr<at::Tensor> HostBuffer(int64_t size_bytes) {
    return device_->HostBuffer(size_bytes);
  }

  // Return when the work is queued; keep the sources alive until Synchronize().
  virtual absl::Status Copy(absl::Span<const CopyRun> runs) = 0;
  virtual absl::Status Cast(WireElement element, absl::Span<const CastRun> runs) = 0;
  // Adds to the sums, by slot. Returns when the sums and all work queued before are done.
  virtual absl::Status Digest(absl::Span<const DigestRun> runs, absl::Span<DigestSum> sums) = 0;
  // Copies bytes between a device tensor and a host tensor, either way. Returns when done.
  absl::Status Transfer(const at::Tensor& from, const at::Tensor& to) {
    return device_->Transfer(from, to);
  }
  // Blocks until all queued work is done.
  absl::Status Synchronize();

 private:
  const std::shared_ptr<device::Device> device_;
  const std::unique_ptr<device::Stream> stream_;  // null on a CPU
};

// The CPU's ops, which run synchronously. Thread-safe.
DeviceOps& CpuOps();

// Replaces `buffer` by one of ops.Buffer() (Provide) or ops.HostBuffer() (ProvideOnHost) if it is
// smaller than `size_bytes`. On the host, Provide() allocates memory that can be lent to ranks of
// this host (comm/shareable_memory.h).
absl::Status Provide(DeviceOps& ops, int64_t size_bytes, at::Tensor& buffer);
absl::Status ProvideOnHost(DeviceOps& ops, int64_t size_bytes, at::Tensor& buffer);

// Copy device bytes to the host, and back. Return when done.
absl::Status ReadBytes(DeviceOps& ops, const std::byte* from, absl::Span<std::byte> to);
absl::Status WriteBytes(DeviceOps& ops, absl::Span<const std::byte> from, std::byte* to);

// Creates ops for the device, on their own stream. UNIMPLEMENTED for a CUDA device in a build
// without TANDEM_CUDA.
absl::StatusOr<std::unique_ptr<DeviceOps>> CreateDeviceOps(at::Device device);

// Defined in cuda_ops.cc with TANDEM_CUDA; no_cuda_ops.cc returns UNIMPLEMENTED.
absl::StatusOr<std::unique_ptr<DeviceOps>> CreateCudaOps(at::Device device);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DEVICE_OPS_H_
