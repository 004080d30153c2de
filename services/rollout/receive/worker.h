// Worker: a thread that runs tasks in order, and a function when its alarm is due.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_WORKER_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_WORKER_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::rollout {

// Any thread may add tasks. The destructor runs all added tasks, then joins.
class Worker {
 public:
  // Calls `on_alarm` on the thread, between tasks, once after each SetAlarm() time.
  explicit Worker(std::function<void()> on_alarm);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns false, running nothing, after Stop().
  bool Add(std::function<void()> task);
  // Replaces the earlier alarm; InfiniteFuture() disables it.
  void SetAlarm(absl::Time time);
  // Runs all added tasks and ends. Idempotent. Do not call from a task.
  void Stop();

 private:
  void Run();

  const std::function<void()> on_alarm_;
  absl::Mutex mu_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  absl::Time alarm_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool alarm_changed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_WORKER_H_
