// DeviceStreams: orders a device's compute and its collectives. On a CPU both run synchronously, so
// there is nothing to order; on CUDA collectives are issued from a side stream, so that they run
// beside the compute stream (the thread's current one) and wait only for what they read.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_DEVICE_STREAMS_H_
#define TANDEM_SERVICES_TRAINER_FSDP_DEVICE_STREAMS_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem::trainer {

class DeviceStreams {
 public:
  // A point in the compute stream.
  class Mark {
   public:
    virtual ~Mark() = default;
  };

  // When the compute stream reaches a point.
  class Moment {
   public:
    virtual ~Moment() = default;
  };

  // UNIMPLEMENTED for a CUDA device in a build without TANDEM_CUDA.
  static absl::StatusOr<std::unique_ptr<DeviceStreams>> Create(c10::Device device);
  virtual ~DeviceStreams() = default;

  // Marks everything issued to the compute stream so far. May return null: nothing to wait for.
  virtual std::shared_ptr<Mark> MarkCompute() = 0;

  // Makes the side stream wait for all marks of `after` (nulls: for nothing), then calls `issue`
  // with the side stream current. A collective issued there starts when the side stream reaches it.
  virtual void IssueAfter(absl::Span<const Mark* const> after, absl::FunctionRef<void()> issue) = 0;

  // The moment when everything issued to the compute stream so far is done. Null where compute is
  // synchronous: the host's clock then measures it.
  virtual std::unique_ptr<Moment> MarkTime() { return nullptr; }
  // Waits for `end`.
  virtual double SecondsBetween(const Moment& begin, const Moment& end) { return 0; }

  // Peak bytes of tensors held by the device's allocator.
  virtual int64_t peak_tensor_bytes() const = 0;
};

// Defined by the CUDA file in a build with TANDEM_CUDA; otherwise returns UNIMPLEMENTED.
absl::StatusOr<std::unique_ptr<DeviceStreams>> CreateCudaStreams(c10::Device device);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_DEVICE_STREAMS_H_
