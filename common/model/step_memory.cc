#include "common/model/step_memory.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <utility>

namespace tandem::model {
namespace {

thread_local StepMemory* in_use = nullptr;

bool IsFree(const at::Tensor& tensor) {
  // A view is another tensor on the same storage, so both counts matter.
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

}  // namespace

at::Tensor StepMemory::Take(at::IntArrayRef sizes, at::ScalarType type) {
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  at::Tensor* fits = nullptr;
  at::Tensor* largest = nullptr;  // the largest free tensor that is too small
  const auto size_of = [](const at::Tensor& tensor) { return tensor.storage().nbytes(); };
  for (at::Tensor& tensor : tensors_) {
    if (tensor.scalar_type() != type || !IsFree(tensor)) continue;
    if (size_of(tensor) >= bytes) {
      if (fits == nullptr || size_of(tensor) < size_of(*fits)) fits = &tensor;
    } else if (largest == nullptr || size_of(tensor) > size_of(*largest)) {
      largest = &tensor;
    }
  }
  if (fits != nullptr) {
    fits->unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    return *fits;
  }
  if (largest != nullptr) {
    // Dropping the outgrown tensor keeps a growing batch from leaving one of every size behind.
    std::swap(*largest, tensors_.back());
    tensors_.pop_back();
  }
  return tensors_.emplace_back(at::empty(sizes, type));
}

void StepMemory::ReleaseUnused() { std::erase_if(tensors_, IsFree); }

UseStepMemory::UseStepMemory(StepMemory* memory) : before_(std::exchange(in_use, memory)) {}

UseStepMemory::~UseStepMemory() { in_use = before_; }

at::Tensor EmptyTensor(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (in_use == nullptr || !options.device().is_cpu()) return at::empty(sizes, options);
  return in_use->Take(sizes, c10::typeMetaToScalarType(options.dtype()));
}

at::Tensor EmptyAs(const at::Tensor& other) { return EmptyTensor(other.sizes(), other.options()); }

}  // namespace tandem::model
