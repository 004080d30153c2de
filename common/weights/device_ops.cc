#include "common/weights/device_ops.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/comm/run_with_deadline.h"
#include "common/comm/shareable_memory.h"
#include "common/status/status_macros.h"
#include "common/weights/cpu_ops.h"

namespace tandem::weights {
namespace {

// Runs the thread's work on `stream`: after what it queued before, and before what it queues later.
class StreamTurn {
 public:
  StreamTurn(device::Device& device, const device::Stream& stream) : device_(device) {
    const std::shared_ptr<device::Event> behind = device.Record(kWorkBeforeOps);
    turn_ = device.Use(stream);
    if (behind != nullptr) device.Wait(*behind);
  }
  ~StreamTurn() {
    try {
      const std::shared_ptr<device::Event> ahead = device_.Record(kWeightOps);
      turn_.reset();
      if (ahead != nullptr) device_.Wait(*ahead);
    } catch (const std::exception&) {
      // The device is lost; whatever is queued next says so.
    }
  }
  StreamTurn(const StreamTurn&) = delete;
  StreamTurn& operator=(const StreamTurn&) = delete;

 private:
  device::Device& device_;
  std::shared_ptr<void> turn_;
};

at::Tensor TensorOf(const std::byte* bytes, size_t size, at::Device device) {
  return at::from_blob(const_cast<std::byte*>(bytes), {static_cast<int64_t>(size)},
                       at::TensorOptions(at::kByte).device(device));
}

}  // namespace

std::shared_ptr<void> DeviceOps::Enter() {
  if (stream_ == nullptr) return nullptr;
  return std::make_shared<StreamTurn>(*device_, *stream_);
}

absl::Status DeviceOps::Synchronize() {
  try {
    device_->Synchronize();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("weights on ", device().str(),
                                            ", synchronize: ", comm::FirstLine(error.what())));
  }
}

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
  // Buffers are kept and sent from, so ranks of this host shall read them where they are.
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
