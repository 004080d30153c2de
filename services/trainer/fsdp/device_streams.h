// DeviceStreams: the order between a device's compute and its collectives. On a CPU both happen
// where they are called and nothing is left to order; on CUDA collectives are issued from a side
// stream, so that they run beside the compute stream (the thread's current one) and wait only for
// what they read.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_DEVICE_STREAMS_H_
#define TANDEM_SERVICES_TRAINER_FSDP_DEVICE_STREAMS_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace tandem::trainer {

class DeviceStreams {
 public:
  // A point in the compute stream.
  class Mark {
   public:
    virtual ~Mark() = default;
  };

  // UNIMPLEMENTED for a CUDA device in a build without TANDEM_CUDA.
  static absl::StatusOr<std::unique_ptr<DeviceStreams>> Create(c10::Device device);
  virtual ~DeviceStreams() = default;

  // Everything that was issued to the compute stream until now. May be null: nothing to wait for.
  virtual std::shared_ptr<Mark> MarkCompute() = 0;

  // Calls `issue` with the side stream current, after that stream was told to wait for `after`
  // (null: for nothing). A collective issued there begins once the side stream has come to it.
  virtual void IssueAfter(const Mark* after, absl::FunctionRef<void()> issue) = 0;

  // Most bytes of tensors that the device's allocator has held.
  virtual int64_t peak_tensor_bytes() const = 0;
};

// The file that a build with TANDEM_CUDA links defines it; the other answers UNIMPLEMENTED.
absl::StatusOr<std::unique_ptr<DeviceStreams>> CreateCudaStreams(c10::Device device);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_DEVICE_STREAMS_H_
