// DriverLease: which driver drives the trainer. At most one holds the lease; it expires when
// nothing was heard of its holder for the lease's duration. Every grant has a larger epoch than the
// one before, so a call under an earlier lease is known and refused, whenever it arrives.
//
//   DriverLease lease({.first_epoch = incarnation, .duration = absl::Seconds(30)});
//   ASSIGN_OR_RETURN(v1::AcquireLeaseResponse granted, lease.Acquire(request));
//   RETURN_IF_ERROR(lease.CheckWrite(request.lease()));  // before anything is changed
//
// Thread-safe, never blocks. An expired lease is over for good, also where nobody has taken its
// place: calls without a lease may have been accepted since.
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
    // Epochs begin here. The trainer's incarnation, so that no epoch of an earlier life comes
    // again.
    int64_t first_epoch = 1;
    // Of a lease whose request names none.
    absl::Duration duration = absl::Seconds(30);
    rpc::MonotonicClock clock = rpc::MonotonicNow;
  };

  explicit DriverLease(Options options);

  // As the RPCs of these names. The response's incarnation is left to the caller.
  absl::StatusOr<v1::AcquireLeaseResponse> Acquire(const v1::AcquireLeaseRequest& request);
  absl::Status Renew(const v1::Lease& lease);
  void Release(const v1::Lease& lease);

  // OK where a call under `lease` (the default: none) may change something now; it counts as a
  // heartbeat. FAILED_PRECONDITION (LEASE_HELD with a LeaseHolder, or LEASE_LOST) otherwise.
  absl::Status CheckWrite(const v1::Lease& lease);

  // nullopt where nobody holds the lease.
  std::optional<v1::LeaseHolder> holder() const;
  // Silence after which the present lease expires; zero where nobody holds it.
  absl::Duration duration() const;
  // Leases that were taken from another driver, expired or not; calls that were refused for want of
  // the lease.
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
  // The lease that was granted last, expired or not; nullopt where it was released, or ended by a
  // call without one.
  std::optional<Held> held_ ABSL_GUARDED_BY(mu_);
  int64_t next_epoch_ ABSL_GUARDED_BY(mu_);
  int64_t num_take_overs_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_refused_ ABSL_GUARDED_BY(mu_) = 0;
};

// "run 5f0c… of process 812 on host-3, run folder /runs/a (since 12m, last heartbeat 3s ago)".
std::string ToString(const v1::LeaseHolder& holder);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_DRIVER_LEASE_H_
