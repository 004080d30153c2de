#include "common/weights/device_ops.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/comm/shareable_memory.h"
#include "common/status/status_macros.h"
#include "common/weights/cpu_ops.h"

namespace tandem::weights {
namespace {

at::Tensor TensorOf(const std::byte* bytes, size_t size, at::Device device) {
  return at::from_blob(const_cast<std::byte*>(bytes), {static_cast<int64_t>(size)},
                       at::TensorOptions(at::kByte).device(device));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceOps>> CreateDeviceOps(at::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuDeviceOps>();
  return CreateCudaOps(device);
}

absl::Status Provide(DeviceOps& ops, int64_t size_bytes, at::Tensor& buffer) {
  if (buffer.defined() && buffer.numel() >= size_bytes) return absl::OkStatus();
  if (!ops.on_host()) {
    ASSIGN_OR_RETURN(buffer, ops.Buffer(size_bytes));
    return absl::OkStatus();
  }
  // Shareable, so that ranks of this host read it in place.
  try {
    buffer = comm::ShareableZeros(size_bytes, at::kByte);
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate a buffer of ", size_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status ProvideOnHost(DeviceOps& ops, int64_t size_bytes, at::Tensor& buffer) {
  if (buffer.defined() && buffer.numel() >= size_bytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(buffer, ops.HostBuffer(size_bytes));
  return absl::OkStatus();
}

absl::Status ReadBytes(DeviceOps& ops, const std::byte* from, absl::Span<std::byte> to) {
  if (to.empty()) return absl::OkStatus();
  if (ops.on_host()) {
    std::memcpy(to.data(), from, to.size());
    return absl::OkStatus();
  }
  return ops.Transfer(TensorOf(from, to.size(), ops.device()),
                      TensorOf(to.data(), to.size(), at::kCPU));
}

absl::Status WriteBytes(DeviceOps& ops, absl::Span<const std::byte> from, std::byte* to) {
  if (from.empty()) return absl::OkStatus();
  if (ops.on_host()) {
    std::memcpy(to, from.data(), from.size());
    return absl::OkStatus();
  }
  return ops.Transfer(TensorOf(from.data(), from.size(), at::kCPU),
                      TensorOf(to, from.size(), ops.device()));
}

}  // namespace tandem::weights
