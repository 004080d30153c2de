// StepMemory: reuses the memory of one engine step's tensors in the next step. Consecutive steps
// need tensors of nearly the same sizes, so in steady state a step allocates nothing.
//
//   StepMemory memory;
//   const UseStepMemory use(&memory);    // EmptyTensor(), on this thread, takes from it
//   at::Tensor x = EmptyTensor({num_tokens, hidden}, at::kFloat);
#ifndef TANDEM_COMMON_MODEL_STEP_MEMORY_H_
#define TANDEM_COMMON_MODEL_STEP_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem::model {

// Keeps as many tensors as were ever in use at once, each as large as its largest use. A tensor is
// free when nobody else holds it or a view of it. Single-threaded.
class StepMemory {
 public:
  // Returns a contiguous CPU tensor with undefined contents: the smallest free one that is large
  // enough. If there is none, allocates one, which replaces the largest free one.
  at::Tensor Take(at::IntArrayRef sizes, at::ScalarType type);

  // Frees the tensors that nobody holds.
  void ReleaseUnused();

 private:
  std::vector<at::Tensor> tensors_;
};

// During its lifetime EmptyTensor() of the constructing thread takes CPU tensors from `memory`.
// Null: allocates them.
class UseStepMemory {
 public:
  explicit UseStepMemory(StepMemory* memory);
  ~UseStepMemory();
  UseStepMemory(const UseStepMemory&) = delete;
  UseStepMemory& operator=(const UseStepMemory&) = delete;

 private:
  StepMemory* const before_;
};

// Returns a contiguous tensor with undefined contents: on the CPU from the StepMemory in use, if
// any; else newly allocated.
at::Tensor EmptyTensor(at::IntArrayRef sizes, const at::TensorOptions& options);
at::Tensor EmptyAs(const at::Tensor& other);  // with the sizes, type and device of `other`

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STEP_MEMORY_H_
