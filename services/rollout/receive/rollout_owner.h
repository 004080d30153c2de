// RolloutOwner: which run's trainer a rollout belongs to, so that no other takes it over unseen.
//
//   RETURN_IF_ERROR(owner.Check(request.owner()));   // before anything of the update is done
//   owner.Accept(request.owner());                   // the update begins
//   owner.Hear(incarnation);                         // a heartbeat of the owner's driver
//
// A newer trainer of the same run is let in at once: the run's trainer restarted. A trainer of
// another run is let in when it says that it takes over, when the owner asked to be held for no
// time, when its run has ended, or when it was silent for longer than it asked for.
//
// Thread-safe, never blocks.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_ROLLOUT_OWNER_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_ROLLOUT_OWNER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/monotonic_clock.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::rollout {

class RolloutOwner {
 public:
  explicit RolloutOwner(rpc::MonotonicClock clock = rpc::MonotonicNow);

  // FAILED_PRECONDITION names the owner: FOREIGN_TRAINER for a trainer of another run that may not
  // have the rollout now, STALE_INCARNATION for one that is older than the owner. INVALID_ARGUMENT
  // for a claim that is not complete.
  absl::Status Check(const common::v1::WeightOwner& claim);
  // From now on the rollout belongs to it; counts as a heartbeat. Logs a change of runs, and counts
  // it as a take-over unless the earlier run had ended.
  void Accept(const common::v1::WeightOwner& claim);
  // Of the owner, where it is this incarnation; otherwise nothing.
  void Hear(int64_t incarnation);

  // The run has ended: if the rollout belongs to it, any other may have it.
  void Release(int64_t incarnation, const std::string& run_id);

  // nullopt before the first update.
  std::optional<common::v1::WeightOwner> owner() const;
  // "; the rollout belongs to run 5f0c…" or nothing: the end of a message.
  std::string Describe() const;
  // Updates with which another run took the rollout over; claims that were refused.
  int64_t num_take_overs() const;
  int64_t num_refused() const;

 private:
  std::string DescribeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsOtherRun(const common::v1::WeightOwner& claim) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const rpc::MonotonicClock clock_;
  mutable absl::Mutex mu_;
  std::optional<common::v1::WeightOwner> owner_ ABSL_GUARDED_BY(mu_);
  bool has_ended_ ABSL_GUARDED_BY(mu_) = false;   // the owner's run
  absl::Duration heard_at_ ABSL_GUARDED_BY(mu_);  // on the clock
  int64_t num_take_overs_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_refused_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_ROLLOUT_OWNER_H_
