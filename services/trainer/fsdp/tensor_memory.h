// TensorMemory: the process's CPU tensors, allocated so that their bytes are counted and freed memory
// stays mapped for the next tensor. Activations are large and short-lived; glibc's defaults map and
// unmap each of them, and the page faults cost a training step 15 to 20 percent.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_
#define TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_

#include <cstdint>

namespace tandem::trainer {

class TensorMemory {
 public:
  // Becomes LibTorch's CPU allocator; tensors that exist keep the memory they have. Idempotent, any
  // thread. Before it is called nothing is counted.
  static void Install();

  static int64_t current_bytes();
  // Largest sum of bytes held at once.
  static int64_t peak_bytes();
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_TENSOR_MEMORY_H_
