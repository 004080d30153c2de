// CpuDeviceOps: DeviceOps for the CPU; other implementations build on it.
#ifndef TANDEM_COMMON_WEIGHTS_CPU_OPS_H_
#define TANDEM_COMMON_WEIGHTS_CPU_OPS_H_

#include "common/weights/device_ops.h"

namespace tandem::weights {

// Thread-safe.
class CpuDeviceOps : public DeviceOps {
 public:
  at::Device device() const override { return at::kCPU; }
  bool on_host() const override { return true; }
  std::shared_ptr<void> Enter() override { return nullptr; }
  absl::StatusOr<at::Tensor> Buffer(int64_t size_bytes) override;
  absl::StatusOr<at::Tensor> HostBuffer(int64_t size_bytes) override { return Buffer(size_bytes); }
  absl::Status Copy(absl::Span<const CopyRun> runs) override;
  absl::Status Cast(WireElement element, absl::Span<const CastRun> runs) override;
  absl::Status Digest(absl::Span<const DigestRun> runs, absl::Span<DigestSum> sums) override;
  absl::Status Transfer(const at::Tensor& from, const at::Tensor& to) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_CPU_OPS_H_
