// WorkerPool: a thread pool that starts threads on demand, up to a maximum.
#ifndef TANDEM_COMMON_HTTP_WORKER_POOL_H_
#define TANDEM_COMMON_HTTP_WORKER_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem::http {

// Thread-safe. The threads have the process's usual stacks (8 MB): templates and regular
// expressions run on them.
class WorkerPool {
 public:
  explicit WorkerPool(int max_threads) : max_threads_(max_threads) {}
  // Like Stop().
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Queues the task while all threads are busy. False if there is no thread and none can be
  // started, or after Stop(). Logs exceptions that a task throws.
  bool Submit(std::function<void()> task);

  // Drops queued tasks and waits for running ones. Submit() then returns false.
  void Stop();

 private:
  void Run();

  const int max_threads_;
  absl::Mutex mu_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  int num_idle_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_WORKER_POOL_H_
