#include "services/trainer/service/trainer_status.h"

#include <string>
#include <utility>

namespace tandem::trainer {

v1::WatchResponse TrainerStatus::Get() const {
  absl::MutexLock lock(&mu_);
  return current_;
}

void TrainerStatus::SetState(v1::TrainerState state) {
  absl::MutexLock lock(&mu_);
  if (!failure_.ok() || !end_.ok() || current_.state() == state) return;
  current_.set_state(state);
  Notify();
}

void TrainerStatus::SetProgress(int64_t policy_version, int64_t step) {
  absl::MutexLock lock(&mu_);
  if (current_.policy_version() == policy_version && current_.step() == step) return;
  current_.set_policy_version(policy_version);
  current_.set_step(step);
  Notify();
}

void TrainerStatus::SetFailed(const absl::Status& error) {
  absl::MutexLock lock(&mu_);
  if (!failure_.ok()) return;
  failure_ = error;
  current_.set_state(v1::TRAINER_STATE_FAILED);
  current_.set_error(std::string(error.message()));
  Notify();
}

void TrainerStatus::Close(const absl::Status& end) {
  absl::MutexLock lock(&mu_);
  if (!end_.ok()) return;
  end_ = end;
  if (failure_.ok()) current_.set_state(v1::TRAINER_STATE_DRAINING);
  Notify();
}

absl::Status TrainerStatus::Refusal() const {
  absl::MutexLock lock(&mu_);
  return failure_.ok() ? end_ : failure_;
}

int64_t TrainerStatus::Subscribe(Watcher watcher) {
  absl::MutexLock lock(&mu_);
  watcher(current_, end_.ok() ? nullptr : &end_);
  watchers_.emplace(next_id_, std::move(watcher));
  return next_id_++;
}

void TrainerStatus::Unsubscribe(int64_t id) {
  absl::MutexLock lock(&mu_);
  watchers_.erase(id);
}

void TrainerStatus::Notify() {
  for (const auto& [id, watcher] : watchers_) watcher(current_, end_.ok() ? nullptr : &end_);
}

}  // namespace tandem::trainer
