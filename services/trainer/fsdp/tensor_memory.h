// TensorMemory: the memory of the process's CPU tensors, counted (with what other processes can
// map, comm/shareable_memory.h), and kept for the next tensor when one is freed. Activations are
// large and short-lived; left to the C library each of them is mapped, faulted in and unmapped
// again, which costs a training step 15 to 20 percent.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_
#define TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::trainer {

class TensorMemory {
 public:
  // As at::zeros() on the CPU, counted like the others, for what is written late or never: its
  // pages are the process's when they are first written, and go back to the system with the tensor.
  // What the process may not have at all is refused here. Throws c10::OutOfMemoryError.
  static at::Tensor Zeros(int64_t numel, at::ScalarType dtype);

  // Becomes LibTorch's CPU allocator; tensors that exist keep the memory they have. Idempotent, any
  // thread. Before it is called nothing is counted.
  static void Install();

  static int64_t current_bytes();
  // Largest sum of bytes held at once since the start or the last ResetPeak().
  static int64_t peak_bytes();
  static void ResetPeak();
  // Free memory that waits for the next tensor: together with current_bytes() at most a quarter and
  // 64 MiB more than the peak.
  static int64_t cached_bytes();
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_
