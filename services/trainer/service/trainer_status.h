// TrainerStatus: what the trainer is doing, for everyone who asks or watches.
//
// Thread-safe. Watchers are called with the lock held, in order, on the thread that made the
// change; they take note and return. Lock order: this one's, then a watcher's own.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_STATUS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_STATUS_H_

#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

class TrainerStatus {
 public:
  // `end` is null while the stream goes on; otherwise the stream ends with it after `response`.
  using Watcher = std::function<void(const v1::WatchResponse& response, const absl::Status* end)>;

  v1::WatchResponse Get() const;

  // FAILED and DRAINING stay: only DRAINING may follow FAILED, nothing follows DRAINING.
  void SetState(v1::TrainerState state);
  void SetProgress(int64_t policy_version, int64_t step);
  // State FAILED with the error. The first error stays.
  void SetFailed(const absl::Status& error);
  // State DRAINING (FAILED stays), and the end of every stream, also of those that begin later.
  void Close(const absl::Status& end);

  // The error of SetFailed(), or UNAVAILABLE after Close(); otherwise OK.
  absl::Status Refusal() const;

  // Calls the watcher with the present state at once, and then after each change.
  int64_t Subscribe(Watcher watcher);
  void Unsubscribe(int64_t id);

 private:
  void Notify() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  v1::WatchResponse current_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  absl::Status end_ ABSL_GUARDED_BY(mu_);  // OK while streams go on
  std::map<int64_t, Watcher> watchers_ ABSL_GUARDED_BY(mu_);
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
};

// Sets a state for its scope, then READY.
class ScopedTrainerState {
 public:
  ScopedTrainerState(TrainerStatus& status, v1::TrainerState state) : status_(status) {
    status_.SetState(state);
  }
  ~ScopedTrainerState() { status_.SetState(v1::TRAINER_STATE_READY); }
  ScopedTrainerState(const ScopedTrainerState&) = delete;
  ScopedTrainerState& operator=(const ScopedTrainerState&) = delete;

 private:
  TrainerStatus& status_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_STATUS_H_
