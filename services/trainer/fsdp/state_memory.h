// StateMemory: memory for a rank's idle training state (masters, gradients, optimizer moments).
#ifndef TANDEM_SERVICES_TRAINER_FSDP_STATE_MEMORY_H_
#define TANDEM_SERVICES_TRAINER_FSDP_STATE_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/trainer/fsdp/offload_file.h"

namespace tandem::trainer {

enum class Offload {
  kNone,  // on the device
  kCpu,   // in pinned host memory; the optimizer then computes on the CPU. For GPUs
  kDisk,  // in a mapped file (OffloadFile); the optimizer computes on the CPU
};

// One thread, like the model that it belongs to.
class StateMemory {
 public:
  // `folder` is for kDisk. INVALID_ARGUMENT for kCpu on a CPU, where the state is in host memory
  // already.
  static absl::StatusOr<std::unique_ptr<StateMemory>> Create(Offload offload,
                                                             const std::string& folder,
                                                             at::Device device);

  // float32 [numel]. On a CPU the first write allocates its pages: gradients and moments of a rank
  // that has not trained yet take no memory. Throws c10::OutOfMemoryError, and c10::Error if a disk
  // is full.
  at::Tensor Zeros(int64_t numel);
  // Zeros [numel] in compute dtype, where the device reads them: in the file on a CPU, on the
  // device otherwise. Throws like Zeros().
  at::Tensor ComputeZeros(int64_t numel, at::ScalarType dtype);

  // Whether the device can read the result of Zeros() directly.
  bool on_device() const { return state_device_ == device_; }
  // Bytes offloaded so far.
  int64_t offloaded_bytes() const { return offloaded_bytes_; }

 private:
  StateMemory(Offload offload, at::Device device, std::shared_ptr<OffloadFile> file)
      : offload_(offload),
        device_(device),
        state_device_(offload == Offload::kNone ? device : at::Device(at::kCPU)),
        file_(std::move(file)) {}
  at::Tensor FromFile(int64_t numel, at::ScalarType dtype);

  const Offload offload_;
  const at::Device device_;
  const at::Device state_device_;
  const std::shared_ptr<OffloadFile> file_;  // null unless kDisk
  int64_t offloaded_bytes_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_STATE_MEMORY_H_
