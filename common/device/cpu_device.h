// CpuDevice: the Device whose work is done when its call returns. Nothing is queued, so there is
// nothing to order.
#ifndef TANDEM_COMMON_DEVICE_CPU_DEVICE_H_
#define TANDEM_COMMON_DEVICE_CPU_DEVICE_H_

#include "common/device/device.h"

namespace tandem::device {

class CpuDevice : public Device {
 public:
  c10::Device device() const override { return c10::kCPU; }
  bool on_host() const override { return true; }
  void MakeCurrent() override {}
  std::unique_ptr<Stream> NewStream(Priority) override { return nullptr; }
  std::shared_ptr<void> Use(const Stream&) override { return nullptr; }
  std::shared_ptr<Event> Record(absl::string_view) override { return nullptr; }
  void Wait(const Event&) override {}
  bool IsDone(const Event&) override { return true; }
  std::unique_ptr<Event> RecordTime() override { return nullptr; }
  double SecondsBetween(const Event&, const Event&) override { return 0; }
  void Synchronize() override {}
  absl::StatusOr<at::Tensor> Buffer(int64_t size_bytes) override;
  absl::StatusOr<at::Tensor> HostBuffer(int64_t size_bytes) override { return Buffer(size_bytes); }
  int64_t peak_tensor_bytes() const override { return 0; }
  absl::Status Transfer(const at::Tensor& from, const at::Tensor& to) override;
};

}  // namespace tandem::device

#endif  // TANDEM_COMMON_DEVICE_CPU_DEVICE_H_
