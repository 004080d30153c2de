// RolloutFleet: the driver's client of the rollout service, over all replicas. Sends each group
// whole to the replica with the fewest outstanding tokens. If that replica is lost, drains, or
// aborts, keeps the tokens it had sampled and asks another replica for the rest.
//
// With trainer.update_policy=available (Options::replicas_may_change) replicas join and leave at
// any time: a monitor polls them, and groups wait while none serves. Otherwise the replicas stay
// those of the start.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_ROLLOUT_FLEET_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_ROLLOUT_FLEET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/fleet_membership.h"
#include "tools/tandem/driver/fleet_monitor.h"
#include "tools/tandem/driver/partial_group.h"

namespace tandem::driver {

// Thread-safe. Calls callbacks without holding a lock.
class RolloutFleet {
 public:
  using Replica = ReplicaAddress;

  struct Options {
    // A group fails if it is not complete after this time, however many replicas worked on it.
    absl::Duration request_timeout = absl::Minutes(10);
    bool replicas_may_change = false;  // trainer.update_policy is `available`
    // If they may change: returns the current replicas; called periodically by the monitor's
    // thread. Unset: those of the start.
    std::function<std::vector<Replica>()> members;
    // Receives a line for each replica that joins or leaves, from any thread.
    std::function<void(const std::string&)> note;
    FleetMembership::Options membership;
    absl::Duration poll_timeout = absl::Seconds(5);
  };

  RolloutFleet(std::vector<Replica> replicas, Options options);
  // Cancels all requests and heartbeats and waits for them to end.
  ~RolloutFleet();
  // Tells the replicas that the run has ended, so that another run can take them at once. Call it
  // while this driver holds the trainer's lease: afterwards the replicas may be its successor's.
  // Waits up to 2 s; a replica that misses the message belongs to the run until its hold expires.
  void EndRun();

  struct GenerateOptions {
    // Sampling of the completions; each prompt mixes its place into the seed.
    rollout::v1::SamplingParams sampling;
    // Samples one more completion per prompt with these parameters: the group's baseline. It runs
    // at the same time as the others, so it adds no wait.
    std::optional<rollout::v1::SamplingParams> baseline;
    bool return_text = true;
    bool return_routed_experts = false;  // not of the baseline
    // Id of the replica that should take the request if it can: its cache may hold the prompt. Empty:
    // the one with the fewest outstanding tokens.
    std::string replica;
    // Receives the number of newly sampled tokens, from gRPC's threads.
    std::function<void(int64_t)> on_tokens;
    // Generate(): called periodically on the calling thread; its error ends the call.
    std::function<absl::Status()> while_waiting;
  };

  // Accepts only samples of this trainer's weights: requests name it, responses of another
  // trainer's weights are dropped and counted, and a replica that serves them is STALE. 0, the
  // default, checks nothing. Call before the first request. `run_id` is the trainer's run; set it
  // if the replicas outlive the run: EndRun() then releases them, so that the trainers of other
  // runs need not wait for them.
  void SetTrainer(int64_t incarnation, const std::string& run_id = "");
  // Sends a heartbeat of the driver to the replicas that belong to the trainer. Does not wait.
  void SendHeartbeats();

  // A group that is being sampled.
  class Run;

  // Starts sampling a prompt; calls `done` once, from any thread, perhaps before it returns. The
  // group's prompt is not set. Errors: those of the replica, with its name, if no other replica can
  // take over; DEADLINE_EXCEEDED gives the state of each replica.
  std::shared_ptr<Run> Start(const Prompt& prompt, int64_t place, const GenerateOptions& options,
                             std::function<void(absl::StatusOr<Group>)> done);
  // Makes the run end with CANCELLED soon. Harmless if it is done.
  void Cancel(Run& run);

  // Samples every prompt, whose place is its index, and returns the groups in that order. On an
  // error, cancels the rest and returns the first error.
  absl::StatusOr<std::vector<Group>> Generate(std::vector<Prompt> prompts,
                                              const GenerateOptions& options);

  // A session of an agent program on one replica (OpenSession in rollout_service.proto), which counts
  // there like a request of its cost while the object exists.
  class AgentSession;
  // Opens a session, whose incarnation it sets, on the replica with the fewest outstanding tokens. Waits
  // for a replica that takes it up to the request timeout. Errors: CANCELLED once `cancelled` is true;
  // those of the replica, with its name.
  absl::StatusOr<std::unique_ptr<AgentSession>> OpenSession(rollout::v1::OpenSessionRequest request,
                                                            int64_t cost,
                                                            const std::function<bool()>& cancelled);

  // Aborts every request on every replica, with a short timeout, for shutdown. Later requests are
  // aborted too.
  void AbortAll();

  bool replicas_may_change() const { return options_.replicas_may_change; }

  // Call around a weight update: see FleetMembership. If replicas may change, BeginPublish() waits
  // for one to publish to; UNAVAILABLE if none joins within the request timeout.
  absl::StatusOr<std::vector<Replica>> BeginPublish();
  void EndPublish(int64_t version, const std::set<std::string>& committed);
  void AbandonPublish();
  // Whether replicas may change and one lacks the version that was published last and may get it.
  bool WantsWeights() const;
  bool AnyServes() const;
  // The version that was published last; -1 before the first.
  int64_t version() const;

  std::vector<Replica> replicas() const;
  // Errors name the replica.
  static absl::StatusOr<rollout::v1::GetServerInfoResponse> GetServerInfo(const Replica& replica);

  // Asks all replicas that are not lost at once, and returns the answers that come within a few seconds.
  std::vector<rollout::v1::GetServerInfoResponse> GetServerInfos() const;

  // Returns fleet/{serving,joining,stale,lost,draining,backing_off}, and the counts since the last
  // call: fleet/{joined,left}, fleet/retried_requests, fleet/kept_tokens, fleet/foreign_answers.
  std::map<std::string, double> TakeMetrics();

 private:
  struct Heartbeat;
  // Makes one for every replica, which gRPC's threads must not own.
  std::vector<std::shared_ptr<Heartbeat>> MakeHeartbeats(absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Cancels those under way and waits for their end.
  void EndHeartbeats();
  struct Job;
  // A connection to a replica, and the jobs that run there.
  struct Link {
    Replica replica;
    std::unique_ptr<rollout::v1::RolloutService::Stub> stub;
    int64_t outstanding_tokens = 0;
    std::set<Job*> jobs;
  };

  // Sends the job to a replica, queues it, or ends it.
  void Place(const std::shared_ptr<Job>& job);
  std::shared_ptr<Link> Pick(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of the replicas that take requests, but for those in `failed_on` if replicas may not change:
  // `preferred`, or the one with the fewest outstanding tokens.
  std::shared_ptr<Link> Pick(const std::set<std::string>& failed_on, const std::string& preferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnCallDone(const std::shared_ptr<Job>& job, absl::Status status);
  void Finish(const std::shared_ptr<Job>& job, absl::Status status);
  // Places waiting jobs, cancels calls to lost replicas, then emits the notes.
  void OnChange();
  void Tick();
  std::string DescribeReplicas() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StreamsResponses() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  FleetMembership membership_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mu_);  // by replica id
  std::set<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mu_);                 // unfinished
  std::vector<std::shared_ptr<Job>> waiting_ ABSL_GUARDED_BY(mu_);           // for a replica
  // Replaced or removed. gRPC's threads leave them to Tick() and the destructor: a thread of gRPC that
  // destroys the last channel waits for itself. The same holds for heartbeats.
  std::vector<std::shared_ptr<Link>> retired_links_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Heartbeat>> heartbeats_ ABSL_GUARDED_BY(mu_);  // sent, perhaps ended
  bool is_aborting_ ABSL_GUARDED_BY(mu_) = false;
  int64_t retried_requests_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t kept_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t foreign_answers_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t trainer_incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  std::string run_id_ ABSL_GUARDED_BY(mu_);      // empty: EndRun() sends nothing
  absl::Time next_list_ = absl::InfinitePast();  // used by the monitor's thread
  std::unique_ptr<FleetMonitor> monitor_;        // null unless replicas may change
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_ROLLOUT_FLEET_H_
