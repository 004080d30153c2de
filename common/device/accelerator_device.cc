#include "common/device/accelerator_device.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <exception>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::device {
namespace {

class AcceleratorStream : public Stream {
 public:
  explicit AcceleratorStream(c10::Stream stream) : stream(stream) {}
  const c10::Stream stream;
};

class AcceleratorEvent : public Event {
 public:
  AcceleratorEvent(c10::DeviceType type, c10::EventFlag flag, const c10::Stream& stream)
      : event(type, flag) {
    event.record(stream);
  }
  c10::Event event;
};

const c10::Event& EventOf(const Event& event) {
  return static_cast<const AcceleratorEvent&>(event).event;
}

std::string FirstLine(absl::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

absl::StatusOr<at::Tensor> Allocate(int64_t size_bytes, const at::TensorOptions& options,
                                    c10::Device device) {
  try {
    return at::empty({size_bytes}, options);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate a buffer of ", size_bytes,
                                                     " bytes for ", device.str(), ": ",
                                                     FirstLine(error.what())));
  }
}

}  // namespace

std::unique_ptr<Stream> AcceleratorDevice::NewStream(Priority priority) {
  return std::make_unique<AcceleratorStream>(
      guard_.getStreamFromGlobalPool(device_, priority == Priority::kHigh));
}

std::shared_ptr<void> AcceleratorDevice::Use(const Stream& stream) {
  return std::make_shared<c10::StreamGuard>(StreamOf(stream));
}

std::shared_ptr<Event> AcceleratorDevice::Record(absl::string_view) {
  return std::make_shared<AcceleratorEvent>(device_.type(), c10::EventFlag::PYTORCH_DEFAULT,
                                            Current());
}

void AcceleratorDevice::Wait(const Event& event) { EventOf(event).block(Current()); }

bool AcceleratorDevice::IsDone(const Event& event) { return EventOf(event).query(); }

std::unique_ptr<Event> AcceleratorDevice::RecordTime() {
  return std::make_unique<AcceleratorEvent>(device_.type(), c10::EventFlag::BACKEND_DEFAULT,
                                            Current());
}

double AcceleratorDevice::SecondsBetween(const Event& begin, const Event& end) {
  EventOf(end).synchronize();
  return EventOf(begin).elapsedTime(EventOf(end)) / 1e3;
}

void AcceleratorDevice::Synchronize() { guard_.synchronizeStream(Current()); }

absl::StatusOr<at::Tensor> AcceleratorDevice::Buffer(int64_t size_bytes) {
  return Allocate(size_bytes, at::TensorOptions(at::kByte).device(device_), device_);
}

absl::StatusOr<at::Tensor> AcceleratorDevice::HostBuffer(int64_t size_bytes) {
  return Allocate(size_bytes, at::TensorOptions(at::kByte).pinned_memory(true), device_);
}

int64_t AcceleratorDevice::peak_tensor_bytes() const {
  const auto stats = c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
      .peak;
}

absl::Status AcceleratorDevice::Transfer(const at::Tensor& from, const at::Tensor& to) {
  try {
    const at::NoGradGuard no_grad;
    to.copy_(from, /*non_blocking=*/true);
    Synchronize();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat(device_.str(), ", transfer: ", FirstLine(error.what())));
  }
}

c10::Stream AcceleratorDevice::StreamOf(const Stream& stream) {
  return static_cast<const AcceleratorStream&>(stream).stream;
}

}  // namespace tandem::device
