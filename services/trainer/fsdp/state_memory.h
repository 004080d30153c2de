// StateMemory: where a rank's training state (masters, gradients, optimizer moments) rests while it
// is not computed on.
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
  // `folder` is that of kDisk. INVALID_ARGUMENT for kCpu on a CPU, whose memory it is already.
  static absl::StatusOr<std::unique_ptr<StateMemory>> Create(Offload offload,
                                                             const std::string& folder,
                                                             at::Device device);

  // float32 [numel]. On a CPU its pages are taken when they are first written: gradients and
  // moments of a rank that has not trained yet take no memory. Throws c10::OutOfMemoryError, and
  // c10::Error where a disk is full.
  at::Tensor Zeros(int64_t numel);
  // Of the type that is computed with, [numel], where the device reads it: in the file on a CPU, on
  // the device otherwise. Throws as Zeros().
  at::Tensor ComputeZeros(int64_t numel, at::ScalarType dtype);

  // Whether what Zeros() answers is read by the device as it is.
  bool on_device() const { return state_device_ == device_; }
  // So far.
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
