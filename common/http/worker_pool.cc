#include "common/http/worker_pool.h"

#include <exception>
#include <system_error>
#include <utility>

#include "common/status/exceptions.h"
#include "common/telemetry/log.h"

namespace tandem::http {

WorkerPool::~WorkerPool() { Stop(); }

bool WorkerPool::Submit(std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  if (stopped_) return false;
  const bool all_busy = static_cast<int>(queue_.size()) >= num_idle_;
  if (all_busy && static_cast<int>(threads_.size()) < max_threads_) {
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error& error) {
      telemetry::LogWarning("no thread available for a request",
                            {{"error", StatusOf(error).message()}});
    }
  }
  if (threads_.empty()) return false;
  queue_.push_back(std::move(task));
  return true;
}

void WorkerPool::Run() {
  absl::MutexLock lock(&mu_);
  const auto has_work = [this] {
    mu_.AssertHeld();
    return stopped_ || !queue_.empty();
  };
  while (true) {
    ++num_idle_;
    mu_.Await(absl::Condition(&has_work));
    --num_idle_;
    if (stopped_) return;
    const std::function<void()> task = std::move(queue_.front());
    queue_.pop_front();
    mu_.Unlock();
    try {
      task();
    } catch (const std::exception& error) {
      telemetry::LogError("a task threw an exception", {{"error", StatusOf(error).message()}});
    } catch (...) {
      telemetry::LogError("a task threw an exception", {});
    }
    mu_.Lock();
  }
}

void WorkerPool::Stop() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    queue_.clear();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem::http
