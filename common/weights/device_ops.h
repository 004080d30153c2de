// DeviceOps: what a weight update does to bytes where they lie: buffers, copies, casts and digests
// on the CPU, or on a CUDA device. The two ends of an update are written once, against this.
//
//   ASSIGN_OR_RETURN(auto ops, CreateDeviceOps(master.device()));
//   const auto entered = ops->Enter();
//   ASSIGN_OR_RETURN(at::Tensor bucket, ops->Buffer(bytes));
//   RETURN_IF_ERROR(ops->Cast(WireElement::kBfloat16, {{from, to, 4096}}));
//
// Threads: one at a time. Errors: RESOURCE_EXHAUSTED for memory, INTERNAL for what the device
// refuses, with the operation.
#ifndef TANDEM_COMMON_WEIGHTS_DEVICE_OPS_H_
#define TANDEM_COMMON_WEIGHTS_DEVICE_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/weights/additive_digest.h"
#include "common/weights/weight_runs.h"

namespace tandem::weights {

class DeviceOps {
 public:
  virtual ~DeviceOps() = default;

  virtual at::Device device() const = 0;
  // Whether this process's own code can read what lies there.
  virtual bool on_host() const = 0;

  // While the result lives, what this thread queues on the device, operations of groups included,
  // goes to the ops' own stream: behind what it had queued before, and ahead of what it queues
  // after. Null where nothing is queued.
  virtual std::shared_ptr<void> Enter() = 0;

  // uint8 [size_bytes], contents undefined.
  virtual absl::StatusOr<at::Tensor> Buffer(int64_t size_bytes) = 0;
  // The same in host memory, from and to which the device copies at full speed.
  virtual absl::StatusOr<at::Tensor> HostBuffer(int64_t size_bytes) = 0;

  // These return when the work is queued; what they read is to stay until Synchronize().
  virtual absl::Status Copy(absl::Span<const CopyRun> runs) = 0;
  virtual absl::Status Cast(WireElement element, absl::Span<const CastRun> runs) = 0;
  // Adds to the sums, by slot. Returns when they are there, and all that was queued before is done.
  virtual absl::Status Digest(absl::Span<const DigestRun> runs, absl::Span<DigestSum> sums) = 0;
  // Bytes from one to the other of a tensor there and one on the host. Returns when it is done.
  virtual absl::Status Transfer(const at::Tensor& from, const at::Tensor& to) = 0;
  // Returns when all that was queued is done.
  virtual absl::Status Synchronize() = 0;
};

// The CPU's: everything is done at once. Any thread.
DeviceOps& CpuOps();

// Makes `buffer` one of ops.Buffer(), or of ops.HostBuffer(), where it has fewer bytes. The first,
// on the host, lies in memory that can be lent to ranks there (comm/shareable_memory.h).
absl::Status Provide(DeviceOps& ops, int64_t size_bytes, at::Tensor& buffer);
absl::Status ProvideOnHost(DeviceOps& ops, int64_t size_bytes, at::Tensor& buffer);

// Bytes there to bytes on the host, and back. Return when it is done.
absl::Status ReadBytes(DeviceOps& ops, const std::byte* from, absl::Span<std::byte> to);
absl::Status WriteBytes(DeviceOps& ops, absl::Span<const std::byte> from, std::byte* to);

// Of the device, on a stream of their own. UNIMPLEMENTED for a CUDA device in a build without
// TANDEM_CUDA.
absl::StatusOr<std::unique_ptr<DeviceOps>> CreateDeviceOps(at::Device device);

// The file that a build with TANDEM_CUDA links defines it; the other answers UNIMPLEMENTED.
absl::StatusOr<std::unique_ptr<DeviceOps>> CreateCudaOps(at::Device device);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DEVICE_OPS_H_
