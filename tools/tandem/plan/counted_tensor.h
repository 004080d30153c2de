// CountedTensor: a tensor of which only the size is there, for following a pass through a model
// without computing it. CountedTape: what autograd keeps of the operations on such tensors.
//
//   CountedTape tape;
//   CountedTensor y(ledger.Take(MemoryKind::kActivations, bytes), bytes);
//   tape.Record([saved = x] { Use(saved); });   // keeps x until the backward pass
//   y.gradient()->Give(size);
//   tape.Backward();
#ifndef TANDEM_TOOLS_TANDEM_PLAN_COUNTED_TENSOR_H_
#define TANDEM_TOOLS_TANDEM_PLAN_COUNTED_TENSOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tools/tandem/plan/memory_ledger.h"

namespace tandem::plan {

// Memory that a tensor and its views share. Recomputation takes it away and gives it back.
using CountedStorage = std::shared_ptr<Size>;

// The gradient of a tensor while the backward pass has it. Adding to one that is there takes no
// memory: autograd adds in place, to a tensor that nobody else holds.
class CountedGradient {
 public:
  void Give(Size size) {
    if (size_ == nullptr || size_.use_count() > 1) size_ = std::move(size);
  }
  Size Take() { return std::exchange(size_, nullptr); }

 private:
  Size size_;
};

// Copies share storage and gradient, as copies of an at::Tensor do.
class CountedTensor {
 public:
  CountedTensor() = default;  // undefined
  CountedTensor(Size size, int64_t bytes)
      : storage_(std::make_shared<Size>(std::move(size))),
        gradient_(std::make_shared<CountedGradient>()),
        bytes_(bytes) {}

  bool defined() const { return storage_ != nullptr; }
  int64_t bytes() const { return bytes_; }
  const CountedStorage& storage() const { return storage_; }
  // Null if no gradient flows to the tensor: it is undefined, or constant.
  const std::shared_ptr<CountedGradient>& gradient() const { return gradient_; }
  // The tensor as one that needs no gradient.
  CountedTensor Constant() const {
    CountedTensor constant = *this;
    constant.gradient_ = nullptr;
    return constant;
  }
  // Another tensor in the same memory, with a gradient of its own.
  CountedTensor View() const {
    CountedTensor view = *this;
    view.gradient_ = std::make_shared<CountedGradient>();
    return view;
  }

 private:
  CountedStorage storage_;
  std::shared_ptr<CountedGradient> gradient_;
  int64_t bytes_ = 0;
};

// Single-threaded.
class CountedTape {
 public:
  // `backward` holds what the operation saves, takes the gradients of its results and gives those
  // of its inputs.
  void Record(std::function<void()> backward) { nodes_.push_back(std::move(backward)); }

  // Runs the operations in reverse; each frees what it saved as soon as it has run.
  void Backward() {
    while (!nodes_.empty()) {
      nodes_.back()();
      nodes_.pop_back();
    }
  }

 private:
  std::vector<std::function<void()>> nodes_;
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_COUNTED_TENSOR_H_
