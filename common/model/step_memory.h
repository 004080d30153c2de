// StepMemory: the memory of a step's tensors, for the next step's. What one step of an engine needs
// the next one needs again, of nearly the same sizes: with it a step allocates nothing.
//
//   StepMemory memory;
//   const UseStepMemory use(&memory);    // EmptyTensor(), on this thread, takes from it
//   at::Tensor x = EmptyTensor({num_tokens, hidden}, at::kFloat);
#ifndef TANDEM_COMMON_MODEL_STEP_MEMORY_H_
#define TANDEM_COMMON_MODEL_STEP_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem::model {

// Keeps as many tensors as ever were in use at once, each as large as the largest that it was taken
// for. A tensor is free when nobody else holds it or a view of it. One thread.
class StepMemory {
 public:
  // Contiguous, on the CPU, its contents undefined: the smallest that is free and large enough.
  // Where there is none, a new one, in place of the largest that is free.
  at::Tensor Take(at::IntArrayRef sizes, at::ScalarType type);

  // Frees what nobody holds.
  void ReleaseUnused();

 private:
  std::vector<at::Tensor> tensors_;
};

// While it lives, EmptyTensor() of the constructing thread takes CPU tensors from `memory`. Null:
// from none.
class UseStepMemory {
 public:
  explicit UseStepMemory(StepMemory* memory);
  ~UseStepMemory();
  UseStepMemory(const UseStepMemory&) = delete;
  UseStepMemory& operator=(const UseStepMemory&) = delete;

 private:
  StepMemory* const before_;
};

// Contiguous, its contents undefined: on the CPU of the memory in use, where there is one; else
// new.
at::Tensor EmptyTensor(at::IntArrayRef sizes, const at::TensorOptions& options);
at::Tensor EmptyAs(const at::Tensor& other);  // of its sizes, type and device

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STEP_MEMORY_H_
