// TensorMemory: allocates the process's CPU tensors, counts their bytes (including memory shared
// with other processes, comm/shareable_memory.h), and caches freed memory for the next tensor.
// Activations are large and short-lived; the C library would map, fault in and unmap each of them,
// which costs a training step 15 to 20 percent.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_
#define TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::trainer {

class TensorMemory {
 public:
  // Like at::zeros() on the CPU, and counted, for tensors that are written late or never: the first
  // write allocates the pages, which return to the system with the tensor. Refuses sizes beyond the
  // process's limits. Throws c10::OutOfMemoryError.
  static at::Tensor Zeros(int64_t numel, at::ScalarType dtype);

  // Installs it as LibTorch's CPU allocator; existing tensors keep their memory. Idempotent, any
  // thread. Nothing is counted before.
  static void Install();

  static int64_t current_bytes();
  // Peak sum of bytes held since the start or the last ResetPeak().
  static int64_t peak_bytes();
  static void ResetPeak();
  // Freed memory cached for the next tensor: together with current_bytes() at most 1.25 times the
  // peak plus 64 MiB.
  static int64_t cached_bytes();
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_
