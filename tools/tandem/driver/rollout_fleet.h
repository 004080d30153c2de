// RolloutFleet: the driver's end of the rollout service, over all replicas. Groups go whole to the
// replica with the fewest tokens outstanding; what a replica that is lost, drains, or aborts had
// sampled of a group is kept, and the rest is asked of another.
//
// Where the fleet is elastic, replicas join and leave while it works: a monitor asks each how it
// is, and groups wait while nobody serves. Otherwise the replicas are those of the start.
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

// Thread-safe. Callbacks come without a lock held.
class RolloutFleet {
 public:
  using Replica = ReplicaAddress;

  struct Options {
    // A group that is not whole after this fails, however many replicas have worked on it.
    absl::Duration request_timeout = absl::Minutes(10);
    bool is_elastic = false;
    // Elastic: who is there now; asked again and again from the monitor's thread. Unset: those of
    // the start.
    std::function<std::vector<Replica>()> members;
    // Told of replicas that come and go, one line each, from any thread.
    std::function<void(const std::string&)> note;
    FleetMembership::Options membership;
    absl::Duration poll_timeout = absl::Seconds(5);
  };

  RolloutFleet(std::vector<Replica> replicas, Options options);
  // Cancels what is under way and waits for its end.
  ~RolloutFleet();
  // Tells the replicas that the run has ended, so that another run may have them at once. Call it
  // while this driver holds the trainer's lease: afterwards the replicas may be its successor's.
  // Waits up to 2 s; a replica that does not hear of it stays the run's until the hold expires.
  void EndRun();

  struct GenerateOptions {
    // How completions are sampled; its seed is mixed with the prompt's place in the batch.
    rollout::v1::SamplingParams sampling;
    // One completion more of each prompt, sampled so: the groups' baselines. Asked for together
    // with the rest, so that it costs no waiting.
    std::optional<rollout::v1::SamplingParams> baseline;
    bool return_text = true;
    // Told of newly sampled tokens, from gRPC's threads.
    std::function<void(int64_t)> on_tokens;
    // Generate(): told of each group that is whole, its index among the prompts first, from the
    // calling thread. The group's prompt is not there yet.
    std::function<void(size_t, const Group&)> on_group;
    // Generate(): called now and then from the calling thread; an error ends the call with it.
    std::function<absl::Status()> while_waiting;
  };

  // From now on only weights of this trainer are sampled with: requests ask for them, answers of
  // another trainer's are dropped and counted, and a replica that serves another's is STALE. 0, the
  // default, checks nothing. Comes before the first request. `run_id`, of the run that the trainer
  // is driven for, if the replicas outlive it: they are told when the fleet goes, so that other
  // runs' trainers need not wait for them.
  void SetTrainer(int64_t incarnation, const std::string& run_id = "");
  // Tells the replicas that belong to that trainer that its driver is alive. Does not wait.
  void SendHeartbeats();

  // A group that is being sampled.
  class Run;

  // Begins to sample a prompt; `done` is called once, from any thread, perhaps before the return.
  // The group has no prompt. Errors: those of the replica, which is named, where no other can take
  // its place; DEADLINE_EXCEEDED says what state each replica was in.
  std::shared_ptr<Run> Start(const Prompt& prompt, int64_t place, const GenerateOptions& options,
                             std::function<void(absl::StatusOr<Group>)> done);
  // It ends with CANCELLED, soon. Harmless for one that is done.
  void Cancel(Run& run);

  // Samples every prompt and returns the groups in the order of the prompts. The first error is
  // returned, after the rest has been cancelled.
  absl::StatusOr<std::vector<Group>> Generate(std::vector<Prompt> prompts,
                                              const GenerateOptions& options);

  // Ends every request on every replica, without waiting for long: used on the way out. Whatever is
  // asked for afterwards is aborted too.
  void AbortAll();

  bool is_elastic() const { return options_.is_elastic; }

  // Around a weight update: see FleetMembership. Where the fleet is elastic BeginPublish() waits
  // for a replica to publish to; UNAVAILABLE where none comes within the request timeout.
  absl::StatusOr<std::vector<Replica>> BeginPublish();
  void EndPublish(int64_t version, const std::set<std::string>& committed);
  void AbandonPublish();
  // Whether a replica of an elastic fleet lacks the version that was published last and may get it.
  bool WantsWeights() const;
  bool AnyServes() const;
  // The version that was published last; -1 before the first.
  int64_t version() const;

  std::vector<Replica> replicas() const;
  // Errors name the replica.
  static absl::StatusOr<rollout::v1::GetServerInfoResponse> GetServerInfo(const Replica& replica);

  // fleet/{serving,joining,stale,lost,draining,backing_off}, and since the last call
  // fleet/{joined,left}, fleet/retried_requests, fleet/kept_tokens
  // and fleet/foreign_answers.
  std::map<std::string, double> TakeMetrics();

 private:
  struct Heartbeat;
  // One to every replica.
  std::vector<std::shared_ptr<Heartbeat>> MakeHeartbeats(absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct Job;
  // A connection to a replica, and what runs there.
  struct Link {
    Replica replica;
    std::unique_ptr<rollout::v1::RolloutService::Stub> stub;
    int64_t outstanding_tokens = 0;
    std::set<Job*> jobs;
  };

  // Gives the job to a replica, lets it wait, or ends it.
  void Place(const std::shared_ptr<Job>& job);
  std::shared_ptr<Link> Pick(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnCallDone(const std::shared_ptr<Job>& job, absl::Status status);
  void Finish(const std::shared_ptr<Job>& job, absl::Status status);
  // What can now be done for jobs that wait, or whose replica is lost; then says what happened.
  void OnChange();
  void Tick();
  std::string DescribeReplicas() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StreamsAreOfUse() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  FleetMembership membership_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mu_);  // by replica id
  std::set<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mu_);                 // not done
  std::vector<std::shared_ptr<Job>> waiting_ ABSL_GUARDED_BY(mu_);           // for a replica
  bool is_aborting_ ABSL_GUARDED_BY(mu_) = false;
  int64_t retried_requests_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t kept_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t foreign_answers_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t trainer_incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  std::string run_id_ ABSL_GUARDED_BY(mu_);      // empty: none that replicas are told of
  absl::Time next_list_ = absl::InfinitePast();  // of the monitor's thread
  std::unique_ptr<FleetMonitor> monitor_;        // null where the fleet is not elastic
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_ROLLOUT_FLEET_H_
