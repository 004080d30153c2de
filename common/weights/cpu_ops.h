// CpuDeviceOps: DeviceOps for the CPU; other implementations build on it.
#ifndef TANDEM_COMMON_WEIGHTS_CPU_OPS_H_
#define TANDEM_COMMON_WEIGHTS_CPU_OPS_H_

#include "common/weights/device_ops.h"

namespace tandem::weights {

// Thread-safe.
class CpuDeviceOps : public DeviceOps {
 public:
  CpuDeviceOps();
  absl::Status Copy(absl::Span<const CopyRun> runs) override;
  absl::Status Cast(WireElement element, absl::Span<const CastRun> runs) override;
  absl::Status Digest(absl::Span<const DigestRun> runs, absl::Span<DigestSum> sums) override;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_CPU_OPS_H_
