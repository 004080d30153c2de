// TrainerStatus: the trainer's current state, for status queries and watchers.
//
// Thread-safe. Calls watchers with the lock held, in order, on the thread that made the change;
// they must return quickly. Lock order: this one's, then a watcher's own.
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
  // `end` is null while the stream continues; otherwise the stream ends with it after `response`.
  using Watcher = std::function<void(const v1::WatchResponse& response, const absl::Status* end)>;

  v1::WatchResponse Get() const;

  // No effect in FAILED or after Close().
  void SetState(v1::TrainerState state);
  void SetProgress(int64_t policy_version, int64_t step);
  // Sets state FAILED with the error. Keeps the first error.
  void SetFailed(const absl::Status& error);
  // Sets state DRAINING (FAILED stays) and ends every stream, including later ones.
  void Close(const absl::Status& end);

  // The error of SetFailed(), else the status given to Close(), else OK.
  absl::Status Refusal() const;

  // Calls the watcher at once with the current state, then after each change.
  int64_t Subscribe(Watcher watcher);
  void Unsubscribe(int64_t id);

 private:
  void Notify() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  v1::WatchResponse current_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  absl::Status end_ ABSL_GUARDED_BY(mu_);  // OK while streams continue
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
