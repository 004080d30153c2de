// SideStream: a stream beside the compute stream (a thread's current one), for collectives: they
// run beside compute and wait only for what they read and overwrite.
//
//   SideStream side(*device);
//   const std::shared_ptr<Event> written = device->Record("gradients written");
//   side.IssueAfter({written.get()}, [&] { work = group.AllReduce(gradients, op, tag); });
//
// One thread. On a CPU everything is synchronous, and IssueAfter() calls `issue` at once.
#ifndef TANDEM_COMMON_DEVICE_SIDE_STREAM_H_
#define TANDEM_COMMON_DEVICE_SIDE_STREAM_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/device/device.h"

namespace tandem::device {

class SideStream {
 public:
  // `device` outlives it. Throws if the device makes no stream.
  explicit SideStream(Device& device)
      : device_(device), stream_(device.NewStream(Priority::kHigh)) {}

  // Makes the stream wait for all events of `after` (nulls: for nothing), then calls `issue` with
  // the stream current. A collective issued there starts when the stream reaches it.
  void IssueAfter(absl::Span<const Event* const> after, absl::FunctionRef<void()> issue) {
    if (stream_ == nullptr) return issue();
    const std::shared_ptr<void> turn = device_.Use(*stream_);
    for (const Event* event : after) {
      if (event != nullptr) device_.Wait(*event);
    }
    issue();
  }

  Device& device() { return device_; }

 private:
  Device& device_;
  const std::unique_ptr<Stream> stream_;
};

}  // namespace tandem::device

#endif  // TANDEM_COMMON_DEVICE_SIDE_STREAM_H_
