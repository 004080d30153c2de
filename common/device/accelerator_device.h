// AcceleratorDevice: a Device over the interface that LibTorch asks of every accelerator: streams
// and events of c10::impl::DeviceGuardImplInterface, c10::DeviceAllocator, pinned memory. CUDA
// implements it in libtorch_cuda, the simulator in tests/simulator; ROCm and NPUs do in their
// builds of LibTorch.
#ifndef TANDEM_COMMON_DEVICE_ACCELERATOR_DEVICE_H_
#define TANDEM_COMMON_DEVICE_ACCELERATOR_DEVICE_H_

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/device/device.h"

namespace tandem::device {

class AcceleratorDevice : public Device {
 public:
  // `device` has an index, and LibTorch an implementation of its type; throws otherwise.
  explicit AcceleratorDevice(c10::Device device) : device_(device), guard_(device.type()) {}

  c10::Device device() const override { return device_; }
  bool on_host() const override { return false; }
  void MakeCurrent() override { guard_.setDevice(device_); }
  std::unique_ptr<Stream> NewStream(Priority priority) override;
  std::shared_ptr<void> Use(const Stream& stream) override;
  std::shared_ptr<Event> Record(absl::string_view what) override;
  void Wait(const Event& event) override;
  bool IsDone(const Event& event) override;
  std::unique_ptr<Event> RecordTime() override;
  double SecondsBetween(const Event& begin, const Event& end) override;
  void Synchronize() override;
  absl::StatusOr<at::Tensor> Buffer(int64_t size_bytes) override;
  absl::StatusOr<at::Tensor> HostBuffer(int64_t size_bytes) override;
  int64_t peak_tensor_bytes() const override;
  absl::Status Transfer(const at::Tensor& from, const at::Tensor& to) override;

  // LibTorch's stream of one made by NewStream().
  static c10::Stream StreamOf(const Stream& stream);

 private:
  c10::Stream Current() const { return guard_.getStream(device_); }

  const c10::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
};

}  // namespace tandem::device

#endif  // TANDEM_COMMON_DEVICE_ACCELERATOR_DEVICE_H_
