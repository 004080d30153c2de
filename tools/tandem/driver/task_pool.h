// TaskPool: runs tasks on a bounded number of threads, in the order in which they were added. A
// thread starts when a task finds no idle one, so a pool whose tasks are short stays small.
//
//   TaskPool pool(32, on_error);
//   pool.Add([] { Judge(); });
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_TASK_POOL_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_TASK_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem::driver {

// Thread-safe. A task must end by a deadline of its own: Stop() waits for those that run.
class TaskPool {
 public:
  // `on_error` gets the exception of a task as a Status, on the task's thread. The pool continues.
  TaskPool(int64_t max_threads, std::function<void(absl::Status)> on_error)
      : max_threads_(max_threads), on_error_(std::move(on_error)) {}
  ~TaskPool() { Stop(); }

  // After Stop() discards the task.
  void Add(std::function<void()> task);
  // Discards the tasks that have not begun and waits for the others. Not from a task.
  void Stop();

 private:
  void Work();

  const int64_t max_threads_;
  const std::function<void(absl::Status)> on_error_;
  absl::Mutex mu_;
  absl::CondVar has_work_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  int64_t num_idle_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_TASK_POOL_H_
