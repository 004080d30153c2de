// RolloutOwner: the run whose trainer owns a rollout, so that no other run takes it over unnoticed.
//
//   RETURN_IF_ERROR(owner.Check(request.owner()));   // before the update changes anything
//   owner.Accept(request.owner());                   // the update starts
//   owner.Hear(incarnation);                         // a heartbeat of the owner's driver
//
// A newer trainer of the same run is accepted at once: the run's trainer restarted. A trainer of
// another run is accepted if it requests a take-over, if the owner asked for no hold time, if the
// owner's run has ended, or if the owner was silent for its hold time.
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
  // take the rollout now, STALE_INCARNATION for a trainer older than the owner. INVALID_ARGUMENT
  // for an invalid claim.
  absl::Status Check(const common::v1::WeightOwner& claim);
  // Makes the claim the owner; counts as a heartbeat. Logs a change of runs, and counts it as a
  // take-over unless the earlier run had ended.
  void Accept(const common::v1::WeightOwner& claim);
  // Records a heartbeat if `incarnation` is the owner's; else does nothing.
  void Hear(int64_t incarnation);

  // Call when a run has ended: if it is the owner, any other run may take the rollout.
  void Release(int64_t incarnation, const std::string& run_id);

  // nullopt before the first update.
  std::optional<common::v1::WeightOwner> owner() const;
  // Returns a suffix for messages, "; the rollout belongs to run 5f0c…", or "".
  std::string Describe() const;
  // Take-overs by another run; refused claims.
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
