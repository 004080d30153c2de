#include "services/rollout/receive/worker.h"

#include <utility>

#include "absl/time/clock.h"

namespace tandem::rollout {

Worker::Worker(std::function<void()> on_alarm)
    : on_alarm_(std::move(on_alarm)), thread_([this] { Run(); }) {}

Worker::~Worker() { Stop(); }

bool Worker::Add(std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  if (stopping_) return false;
  tasks_.push_back(std::move(task));
  return true;
}

void Worker::SetAlarm(absl::Time time) {
  absl::MutexLock lock(&mu_);
  alarm_ = time;
  alarm_changed_ = true;
}

void Worker::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Worker::Run() {
  absl::MutexLock lock(&mu_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || alarm_changed_ || !tasks_.empty();
  };
  while (true) {
    mu_.AwaitWithDeadline(absl::Condition(&has_work), alarm_);
    alarm_changed_ = false;
    std::function<void()> task;
    if (!tasks_.empty()) {
      task = std::move(tasks_.front());
      tasks_.pop_front();
    } else if (stopping_) {
      return;
    } else if (absl::Now() >= alarm_) {
      alarm_ = absl::InfiniteFuture();
      task = on_alarm_;
    } else {
      continue;
    }
    mu_.Unlock();
    task();
    task = nullptr;
    mu_.Lock();
  }
}

}  // namespace tandem::rollout
