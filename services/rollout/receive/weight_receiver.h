// WeightReceiver: the state machine behind rollout.v1.WeightService on one rank.
//
//   STALE or SERVING(version)
//     ─BeginUpdate─► BEGUN ─(go key)─► RECEIVING ─► STAGED
//     ─VerifyUpdate─► VERIFIED ─CommitUpdate─► SERVING(new version)
//
// AbortUpdate, a failure or the deadline return from any of them to the initial state and drop the
// staged weights.
//
// weight_service.proto defines the protocol. A worker thread executes everything slow, in request
// order: it allocates memory, waits for the go key, joins the group (or reads from another
// replica), receives and digests. Only the worker writes the staged arena. For a commit it calls
// the store and waits: the engine thread flips the arenas (engine/engine_commit.cc). RPC threads
// only check, record and return; responses come through callbacks, on the worker or the caller's
// thread.
//
// Thread-safe. `mu_` is never held while calling the store, the group or a callback; the worker's
// lock and those of the groups nest within it.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_RECEIVER_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_RECEIVER_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/relay_table.h"
#include "services/rollout/receive/live_stream.h"
#include "services/rollout/receive/rollout_owner.h"
#include "services/rollout/receive/transport_set.h"
#include "services/rollout/receive/weight_store.h"
#include "services/rollout/receive/worker.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

class WeightReceiver {
 public:
  template <typename Response>
  using Done = std::function<void(absl::StatusOr<Response>)>;

  // `store` and `owner` must outlive the receiver. `owner` decides whose updates are accepted;
  // null: anybody's. In a replica of several ranks only rank 0 has one, since no rank commits
  // without it.
  explicit WeightReceiver(WeightStore* store, StreamReader::Options stream = {},
                          RolloutOwner* owner = nullptr);
  ~WeightReceiver();

  v1::GetManifestResponse GetManifest() const;
  // Checks whether BeginUpdate would reject this trainer; see GetManifest.
  absl::Status CheckClaim(const v1::GetManifestRequest& request) const;
  void BeginUpdate(const v1::BeginUpdateRequest& request, Done<v1::BeginUpdateResponse> done);
  void VerifyUpdate(const v1::VerifyUpdateRequest& request, Done<v1::VerifyUpdateResponse> done);
  void CommitUpdate(const v1::CommitUpdateRequest& request, Done<v1::CommitUpdateResponse> done);
  absl::Status AbortUpdate(const v1::AbortUpdateRequest& request);
  void GetDigests(Done<v1::GetDigestsResponse> done);

  // Opens the live weights for a reader; errors: those of ReadWeights. Use within RunSoon().
  absl::StatusOr<std::unique_ptr<LiveStream>> OpenLive(const v1::ReadWeightsRequest& request) const;

  // Queues `body` for the receiver's thread and returns at once. After Shutdown() returns false and
  // never calls `body`.
  bool RunSoon(std::function<void(WeightStore&)> body);
  // Runs `body` on the receiver's thread, so no update touches the store meanwhile, and returns its
  // status. Blocks. UNAVAILABLE after Shutdown().
  absl::Status RunExclusive(const std::function<absl::Status(WeightStore&)>& body);

  // The version being received, or -1.
  int64_t updating_to() const;

  // Drops an open update, fails every waiting call with UNAVAILABLE, and rejects new ones. Call it
  // when the process drains, before the server waits for its calls. Idempotent.
  void Shutdown();

 private:
  enum class State { kBegun, kReceiving, kStaged, kVerified, kCommitting, kClosed };

  struct Update {
    v1::BeginUpdateRequest request;  // without manifest, buckets and relayed
    ReceiveTransport* transport = nullptr;
    std::shared_ptr<const weights::TransferPlan> plan;
    std::shared_ptr<const weights::RelayedBuckets> relayed;  // null: nothing to relay
    absl::Time deadline;
    absl::Duration join_timeout;  // infinite: only the deadline applies
    absl::Notification cancel;
    State state = State::kBegun;  // guarded by mu_, like the following
    bool ready = false;
    v1::VerifyUpdateResponse verified;  // once kStaged
    std::vector<Done<v1::BeginUpdateResponse>> begin_waiters;
    std::vector<Done<v1::VerifyUpdateResponse>> verify_waiters;
    std::vector<Done<v1::CommitUpdateResponse>> commit_waiters;
  };
  using UpdatePtr = std::shared_ptr<Update>;

  // A finished update: committed (OK), failed or aborted.
  struct Closed {
    std::string update_id;
    bool committed = false;
    absl::Status status;
    v1::CommitUpdateResponse commit;
  };

  // Callbacks to run after mu_ is released.
  using Calls = std::vector<std::function<void()>>;

  // FAILED_PRECONDITION (STALE_INCARNATION) if it is older than the newest.
  absl::Status CheckIncarnation(int64_t incarnation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // FAILED_PRECONDITION (VERSION_NOT_NEWER) if the version is or was live; versions of another run,
  // or of a trainer that takes over, are numbered separately.
  absl::Status CheckVersion(const v1::BeginUpdateRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts an update of `claim`. A newer trainer ends an older one's open update.
  void EnterIncarnation(const common::v1::WeightOwner& claim, Calls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<UpdatePtr> FindOpen(const std::string& update_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Closed* FindClosed(const std::string& update_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fails an open update; nothing of it remains once `calls` have run.
  void Close(UpdatePtr update, absl::Status status, Calls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remember(Closed closed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sets `update`'s plan; false if the request omits it and no earlier one is known.
  absl::StatusOr<bool> TakePlan(const v1::BeginUpdateRequest& request, Update& update)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Make(Calls& calls);

  // Queues a task for an open update, or closes the update if the worker has stopped. Needs mu_,
  // like Close(), so that the worker's order is the order in which updates start and end.
  void AddTask(const UpdatePtr& update, std::function<void()> task, Calls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Runs on the worker.
  void RunUpdate(const UpdatePtr& update);
  absl::Status Receive(Update& update, v1::VerifyUpdateResponse& verified);
  void RunCommit(const UpdatePtr& update);
  void OnDeadline();

  WeightStore* const store_;
  RolloutOwner* const owner_;  // may be null
  TransportSet transports_;

  mutable absl::Mutex mu_;
  int64_t newest_incarnation_ ABSL_GUARDED_BY(mu_) = -1;
  std::shared_ptr<const weights::TransferPlan> plan_
      ABSL_GUARDED_BY(mu_);  // of the newest incarnation
  std::shared_ptr<const weights::RelayedBuckets> relayed_ ABSL_GUARDED_BY(mu_);  // with plan_
  UpdatePtr open_ ABSL_GUARDED_BY(mu_);
  std::deque<Closed> closed_ ABSL_GUARDED_BY(mu_);
  std::string live_run_id_ ABSL_GUARDED_BY(mu_);  // the run that published the live version
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;

  Worker worker_;  // last: its thread uses the above
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_RECEIVER_H_
