// Device: what Tandem asks of a device that computes: streams, events, memory and copies. A CPU
// (CpuDevice) runs everything at once; an accelerator queues work on streams.
//
//   ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, Device::Create(tensor.device()));
//   const std::unique_ptr<Stream> side = device->NewStream(Priority::kHigh);
//   const std::shared_ptr<Event> written = device->Record("weights written");
//   const std::shared_ptr<void> turn = device->Use(*side);
//   if (written != nullptr) device->Wait(*written);    // `side` continues after the writes
//
// README.md says what another accelerator has to implement. Any thread; what a thread queues goes
// to its own current stream. Errors of an accelerator are exceptions, as they are in LibTorch,
// unless a method returns a Status.
#ifndef TANDEM_COMMON_DEVICE_DEVICE_H_
#define TANDEM_COMMON_DEVICE_DEVICE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::device {

// A queue of work that runs in order, beside the work of other streams.
class Stream {
 public:
  virtual ~Stream() = default;
};

// A point in a stream.
class Event {
 public:
  virtual ~Event() = default;
};

// kHigh: for what other work waits for, such as collectives.
enum class Priority { kNormal, kHigh };

class Device {
 public:
  // INVALID_ARGUMENT for an accelerator without an index, UNIMPLEMENTED for one that this build
  // does not support, UNAVAILABLE if it refuses.
  static absl::StatusOr<std::shared_ptr<Device>> Create(c10::Device device);
  virtual ~Device() = default;

  virtual c10::Device device() const = 0;
  // True if code of this process may read the device's memory, and work is done when its call
  // returns.
  virtual bool on_host() const = 0;

  // Makes the device the calling thread's current one.
  virtual void MakeCurrent() = 0;

  // Streams. On a CPU there are none: NewStream() and Use() return null.

  virtual std::unique_ptr<Stream> NewStream(Priority priority) = 0;
  // Makes `stream` the calling thread's current one until the result is destroyed.
  virtual std::shared_ptr<void> Use(const Stream& stream) = 0;

  // Events of the calling thread's current stream. Null means: nothing to wait for.

  // Marks everything queued so far. `what` names it in a simulator's reports.
  virtual std::shared_ptr<Event> Record(absl::string_view what) = 0;
  // The current stream waits for `event`.
  virtual void Wait(const Event& event) = 0;
  // Whether the device has reached `event`.
  virtual bool IsDone(const Event& event) = 0;
  // The time at which the device reaches this point. Null where the host's clock measures work.
  virtual std::unique_ptr<Event> RecordTime() = 0;
  // Of two results of RecordTime(); waits for `end`.
  virtual double SecondsBetween(const Event& begin, const Event& end) = 0;
  // The calling thread waits for everything queued so far.
  virtual void Synchronize() = 0;

  // Memory: uint8 [size_bytes], contents undefined. The device's allocator hands a freed block out
  // again at once, to the stream that had it. RESOURCE_EXHAUSTED if there is no more.

  virtual absl::StatusOr<at::Tensor> Buffer(int64_t size_bytes) = 0;
  // The same in host memory that the device copies from and to while the host proceeds
  // (page-locked).
  virtual absl::StatusOr<at::Tensor> HostBuffer(int64_t size_bytes) = 0;
  // Peak bytes of tensors on an accelerator; 0 on a CPU, whose allocator counts them.
  virtual int64_t peak_tensor_bytes() const = 0;

  // Copies bytes between tensors of the device and of the host, either way. Returns when done.
  virtual absl::Status Transfer(const at::Tensor& from, const at::Tensor& to) = 0;
};

}  // namespace tandem::device

#endif  // TANDEM_COMMON_DEVICE_DEVICE_H_
