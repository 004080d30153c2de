#include "tools/tandem/driver/task_pool.h"

#include <utility>

#include "common/status/exceptions.h"

namespace tandem::driver {

void TaskPool::Add(std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  if (is_stopping_) return;
  tasks_.push_back(std::move(task));
  // Idle threads may not have fetched earlier tasks yet, so count those tasks, too.
  if (num_idle_ < static_cast<int64_t>(tasks_.size()) &&
      static_cast<int64_t>(threads_.size()) < max_threads_) {
    threads_.emplace_back([this] { Work(); });
  }
  has_work_.Signal();
}

void TaskPool::Work() {
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mu_);
      ++num_idle_;
      while (tasks_.empty() && !is_stopping_) has_work_.Wait(&mu_);
      --num_idle_;
      if (is_stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    absl::Status status = Catch([&task] {
      task();
      return absl::OkStatus();
    });
    if (!status.ok()) on_error_(std::move(status));
  }
}

void TaskPool::Stop() {
  std::deque<std::function<void()>> discarded;  // destroyed without the lock
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    is_stopping_ = true;
    discarded.swap(tasks_);
    threads.swap(threads_);
    has_work_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem::driver
