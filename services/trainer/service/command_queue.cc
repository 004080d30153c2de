#include "services/trainer/service/command_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::trainer {

absl::Status CommandQueue::Submit(Command command) {
  absl::MutexLock lock(&mu_);
  if (closed_) return absl::UnavailableError("the trainer is stopping and accepts no more calls");
  if (waiting_.size() >= max_waiting_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        waiting_.size(),
        " calls are queued already, and the trainer runs one at a time; try again later"));
  }
  waiting_.push_back(std::move(command));
  return absl::OkStatus();
}

std::optional<CommandQueue::Command> CommandQueue::Next(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !waiting_.empty();
  };
  mu_.AwaitWithTimeout(absl::Condition(&ready), timeout);
  if (waiting_.empty()) return std::nullopt;
  Command command = std::move(waiting_.front());
  waiting_.pop_front();
  return command;
}

void CommandQueue::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

bool CommandQueue::IsFinished() const {
  absl::MutexLock lock(&mu_);
  return closed_ && waiting_.empty();
}

}  // namespace tandem::trainer
