// LeaseKeeper: holds the driver's lease on the trainer, from acquisition to release; its thread
// sends the heartbeats.
//
//   ASSIGN_OR_RETURN(auto keeper,
//                    LeaseKeeper::Acquire(*stub, {.run_id = run_id, .run_dir = run_dir}));
//   *header.mutable_lease() = keeper->lease();
//   RETURN_IF_ERROR(keeper->status());  // LEASE_LOST once the trainer has said so
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_LEASE_KEEPER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_LEASE_KEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"

namespace tandem::driver {

struct LeaseOptions {
  std::string run_id;
  std::string run_dir;
  // If another process of the same run holds the lease, waits until it expires instead of failing
  // at once.
  bool waits_for_own_run = false;
  // Takes the lease from its holder, and rollouts from the run that they belong to.
  bool take_over = false;
  // Silence after which the lease expires; unset: the trainer's default.
  std::optional<absl::Duration> duration;
  // Receives a message that says what the keeper waits for.
  std::function<void(const std::string&)> note;
  // Ends the wait with CANCELLED.
  std::function<bool()> interrupted;
  // Called from the keeper's thread with every heartbeat, to send heartbeats to others too.
  std::function<void()> on_heartbeat;
};

// Whether a call was refused because its lease is lost: the trainer refuses all further calls of
// this process.
bool IsLeaseLost(const absl::Status& status);

// Thread-safe.
class LeaseKeeper {
 public:
  // FAILED_PRECONDITION names the holder of the lease. `stub` must outlive the keeper.
  static absl::StatusOr<std::unique_ptr<LeaseKeeper>> Acquire(
      trainer::v1::TrainerService::Stub& stub, LeaseOptions options);
  // Releases the lease if the trainer answers.
  ~LeaseKeeper();
  // Stops the heartbeats. If the trainer confirms that the lease is still held, calls `while_held`,
  // which may end what only the trainer's driver may end. The destructor releases the lease.
  void End(const std::function<void()>& while_held);

  const trainer::v1::Lease& lease() const { return granted_.lease(); }
  int64_t incarnation() const { return granted_.incarnation(); }
  bool takes_over() const { return options_.take_over; }
  // FAILED_PRECONDITION (LEASE_LOST) once the trainer has refused a heartbeat: this process is no
  // longer the driver.
  absl::Status status() const;

 private:
  LeaseKeeper(trainer::v1::TrainerService::Stub& stub, LeaseOptions options,
              trainer::v1::AcquireLeaseResponse granted);
  void HeartbeatLoop();
  absl::Status Renew(absl::Duration timeout);
  void StopHeartbeats();

  trainer::v1::TrainerService::Stub& stub_;
  const LeaseOptions options_;
  const trainer::v1::AcquireLeaseResponse granted_;
  mutable absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the above
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_LEASE_KEEPER_H_
