// DriverLease: the lease of the one driver that may drive the trainer. It expires after `duration`
// without a heartbeat of its holder. Every grant has a larger epoch than the last, so a call under
// an earlier lease is recognised and refused, whenever it arrives.
//
//   DriverLease lease({.first_epoch = incarnation, .duration = absl::Seconds(30)});
//   ASSIGN_OR_RETURN(v1::AcquireLeaseResponse granted, lease.Acquire(request));
//   RETURN_IF_ERROR(lease.CheckWrite(header.lease()));  // before anything is changed
//
// Thread-safe, never blocks. An expired lease cannot be revived, even if nobody took it over: calls
// without a lease may have been accepted since.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_DRIVER_LEASE_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_DRIVER_LEASE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/monotonic_clock.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

inline constexpr absl::Duration kMaxLeaseDuration = absl::Hours(24);

class DriverLease {
 public:
  struct Options {
    // The first epoch. Use the trainer's incarnation, so that no epoch of an earlier process
    // repeats.
    int64_t first_epoch = 1;
    // Duration of a lease whose request names none.
    absl::Duration duration = absl::Seconds(30);
    rpc::MonotonicClock clock = rpc::MonotonicNow;
  };

  explicit DriverLease(Options options);

  // Implement the RPCs of these names. The caller fills in the response's incarnation.
  absl::StatusOr<v1::AcquireLeaseResponse> Acquire(const v1::AcquireLeaseRequest& request);
  absl::Status Renew(const v1::Lease& lease);
  void Release(const v1::Lease& lease);

  // OK if a call under `lease` (the default: none) may change state now; counts as a heartbeat.
  // Otherwise FAILED_PRECONDITION (LEASE_HELD with a LeaseHolder, or LEASE_LOST).
  absl::Status CheckWrite(const v1::Lease& lease);

  // nullopt if nobody holds the lease.
  std::optional<v1::LeaseHolder> holder() const;
  // Time without a heartbeat after which the lease expires; zero if nobody holds it.
  absl::Duration duration() const;
  // Number of leases taken over from another driver, expired or not; number of calls refused
  // because the caller did not hold the lease.
  int64_t num_take_overs() const;
  int64_t num_refused() const;

 private:
  struct Held {
    v1::AcquireLeaseRequest by;
    int64_t epoch = 0;
    absl::Duration duration;
    absl::Duration since;     // on the clock
    absl::Duration heard_at;  // likewise
  };

  bool IsLive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::LeaseHolder Describe() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status HeldError() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LostError(const v1::Lease& lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckHeld(const v1::Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  // The lease granted last, expired or not; nullopt after its release, or after a call without a
  // lease ended it.
  std::optional<Held> held_ ABSL_GUARDED_BY(mu_);
  int64_t next_epoch_ ABSL_GUARDED_BY(mu_);
  int64_t num_take_overs_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_refused_ ABSL_GUARDED_BY(mu_) = 0;
};

// "run 5f0c… of process 812 on host-3, run folder /runs/a (held for 12m, last heartbeat 3s ago)".
std::string ToString(const v1::LeaseHolder& holder);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_DRIVER_LEASE_H_
