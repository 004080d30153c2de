#include "services/trainer/fsdp/state_memory.h"

#include <ATen/ops/zeros.h>

#include "absl/memory/memory.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/trainer/fsdp/tensor_memory.h"

namespace tandem::trainer {

absl::StatusOr<std::unique_ptr<StateMemory>> StateMemory::Create(Offload offload,
                                                                 const std::string& folder,
                                                                 at::Device device) {
  if (offload == Offload::kCpu && device.is_cpu()) {
    return absl::InvalidArgumentError(
        "trainer.offload: cpu moves a GPU's state to host memory, but this rank computes on a CPU; "
        "use disk or none");
  }
  std::shared_ptr<OffloadFile> file;
  if (offload == Offload::kDisk) {
    ASSIGN_OR_RETURN(file, OffloadFile::Create(folder));
    if (file->in_memory()) {
      telemetry::LogWarning(
          "trainer.offload_dir is in memory, where offloading frees nothing; choose a folder on a "
          "disk",
          {{"offload_dir", folder}});
    }
  }
  return absl::WrapUnique(new StateMemory(offload, device, std::move(file)));
}

at::Tensor StateMemory::FromFile(int64_t numel, at::ScalarType dtype) {
  absl::StatusOr<at::Tensor> tensor = file_->Zeros(numel, dtype);
  TORCH_CHECK_WITH(OutOfMemoryError, tensor.ok(), tensor.status().message());
  offloaded_bytes_ += static_cast<int64_t>(tensor->nbytes());
  return *std::move(tensor);
}

at::Tensor StateMemory::Zeros(int64_t numel) {
  if (offload_ == Offload::kDisk) return FromFile(numel, at::kFloat);
  if (offload_ == Offload::kNone && device_.is_cpu()) {
    return TensorMemory::Zeros(numel, at::kFloat);
  }
  at::TensorOptions options = at::TensorOptions(at::kFloat).device(state_device_);
  if (offload_ == Offload::kCpu) {
    options = options.pinned_memory(true);
    offloaded_bytes_ += numel * static_cast<int64_t>(sizeof(float));
  }
  return at::zeros({numel}, options);
}

at::Tensor StateMemory::ComputeZeros(int64_t numel, at::ScalarType dtype) {
  if (offload_ == Offload::kDisk && device_.is_cpu()) return FromFile(numel, dtype);
  return at::zeros({numel}, at::TensorOptions(dtype).device(device_));
}

}  // namespace tandem::trainer
