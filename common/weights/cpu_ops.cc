#include "common/weights/cpu_ops.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <memory>

#include "common/device/cpu_device.h"
#include "common/weights/bfloat16_cast.h"

namespace tandem::weights {
namespace {

at::ScalarType TypeOf(WireElement element) {
  return element == WireElement::kFloat16 ? at::kHalf : at::kFloat;
}

}  // namespace

CpuDeviceOps::CpuDeviceOps() : DeviceOps(std::make_shared<device::CpuDevice>()) {}

absl::Status CpuDeviceOps::Copy(absl::Span<const CopyRun> runs) {
  for (const CopyRun& run : runs) {
    for (int64_t i = 0; i < run.repeat; ++i) {
      std::memcpy(run.to + i * run.to_stride, run.from + i * run.from_stride,
                  static_cast<size_t>(run.size));
    }
  }
  return absl::OkStatus();
}

absl::Status CpuDeviceOps::Cast(WireElement element, absl::Span<const CastRun> runs) {
  if (element == WireElement::kBfloat16) {
    for (const CastRun& run : runs) {
      for (int64_t i = 0; i < run.repeat; ++i) {
        CastToBfloat16(run.from + i * run.from_stride, run.length,
                       run.to + i * run.length * WireElementBytes(element));
      }
    }
    return absl::OkStatus();
  }
  at::NoGradGuard no_grad;
  for (const CastRun& run : runs) {
    const at::Tensor from = at::from_blob(const_cast<float*>(run.from), {run.repeat, run.length},
                                          {run.from_stride, 1}, at::kFloat);
    at::from_blob(run.to, {run.repeat, run.length}, TypeOf(element)).copy_(from);
  }
  return absl::OkStatus();
}

absl::Status CpuDeviceOps::Digest(absl::Span<const DigestRun> runs, absl::Span<DigestSum> sums) {
  for (const DigestRun& run : runs) {
    AddStrided(run.offset, run.stride, run.row_bytes,
               {run.bytes, static_cast<size_t>(run.row_bytes * run.rows)}, sums[run.slot]);
  }
  return absl::OkStatus();
}

DeviceOps& CpuOps() {
  static CpuDeviceOps* const ops = new CpuDeviceOps();
  return *ops;
}

}  // namespace tandem::weights
