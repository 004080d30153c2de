// EngineWork: the Work of an operation that one of our engines executes; helpers for tensor bytes.
#ifndef TANDEM_COMMON_COMM_ENGINE_WORK_H_
#define TANDEM_COMMON_COMM_ENGINE_WORK_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/comm/link_facts.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// `Engine` has Wait(Task&); `Task` has `completed_at` and `done`, an atomic bool that is set last.
template <typename Engine, typename Task>
class EngineWork : public Work, public KnowsCompletion {
 public:
  EngineWork(std::shared_ptr<Engine> engine, std::shared_ptr<Task> task)
      : engine_(std::move(engine)), task_(std::move(task)) {}

  absl::Status Wait() override { return engine_->Wait(*task_); }
  bool IsCompleted() override { return task_->done.load(std::memory_order_acquire); }
  std::chrono::steady_clock::time_point completed_at() const override {
    return task_->completed_at;
  }

 private:
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Task> task_;
};

// Data pointer of a contiguous tensor; null if it has no elements.
inline std::byte* DataOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.numel() == 0 ? nullptr : tensor.data_ptr());
}
inline int64_t SizeOf(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_ENGINE_WORK_H_
