// Worker: a thread that runs tasks one after another, and a function whenever its time has come.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_WORKER_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_WORKER_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::rollout {

// Any thread may add tasks. Destruction runs what has been added, and joins.
class Worker {
 public:
  // `on_alarm` is called on the thread, between tasks, once after the time given to SetAlarm().
  explicit Worker(std::function<void()> on_alarm);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // False, and nothing is run, after Stop().
  bool Add(std::function<void()> task);
  // Replaces the earlier alarm; InfiniteFuture() for none.
  void SetAlarm(absl::Time time);
  // Runs what has been added and ends. Idempotent. Not from a task.
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
