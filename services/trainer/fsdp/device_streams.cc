#include "services/trainer/fsdp/device_streams.h"

#include "services/trainer/fsdp/tensor_memory.h"

namespace tandem::trainer {
namespace {

class CpuStreams : public DeviceStreams {
 public:
  std::shared_ptr<Mark> MarkCompute() override { return nullptr; }
  void IssueAfter(absl::Span<const Mark* const>, absl::FunctionRef<void()> issue) override {
    issue();
  }
  int64_t peak_tensor_bytes() const override { return TensorMemory::peak_bytes(); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStreams>> DeviceStreams::Create(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuStreams>();
  return CreateCudaStreams(device);
}

}  // namespace tandem::trainer
