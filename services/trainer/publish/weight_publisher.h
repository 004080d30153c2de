// WeightPublisher: makes the trainer's current weights live on the rollouts, as one transaction.
//
//   ASSIGN_OR_RETURN(auto publisher, WeightPublisher::Create(std::move(options)));
//   ASSIGN_OR_RETURN(PublishReport report, publisher->Publish(version, replicas, timeout));
//
// The leader does this. The other ranks take part at the same place in their order of collectives:
// see the transport's header.
//
// It serves the rendezvous store of the update groups, holds the channels to the replicas, and
// reuses the group and the agreed manifest across updates; it recreates both when the set of
// replicas changes, when a replica has restarted, and after a failure.
//
// If some replicas already have the version, the others read it from those where the transport
// allows it (stream_feed.h); the transport feeds the rest, in its route's order (route.h).
//
// Under kAvailable every failed attempt changes the next one. Replicas at fault are left out. If
// none is at fault, the replica whose incoming link broke (transfer_blame.h) leaves the chain: it
// reads the version from replicas that have it, or gets it from the trainer alone. It stays out of
// the chain for some of the following updates (link_doubts.h).
//
// Threads: call Publish() on the leader's collective thread. It blocks at most until its timeout,
// plus a few seconds to roll back a failed update. Each call lets the other ranks' Follow() return,
// whatever happens, unless the trainer's own group is broken.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_WEIGHT_PUBLISHER_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_WEIGHT_PUBLISHER_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "services/trainer/publish/link_doubts.h"
#include "services/trainer/publish/replica_client.h"
#include "services/trainer/publish/send_transport.h"
#include "services/trainer/publish/stream_feed.h"
#include "services/trainer/publish/update_attempt.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::trainer {

// How an update treats replicas that fail.
enum class UpdatePolicy {
  kAll,        // a failure before the first commit aborts everywhere; the old version serves
  kAvailable,  // the update continues without them
};

struct PublishReport {
  struct Replica {
    std::string id;
    bool committed = false;
    absl::Status error;
    double pause_seconds = 0;
    std::string fed_by;  // id of the replica that it read the version from; empty: none
  };
  int64_t policy_version = 0;
  std::string model_digest;  // empty if every replica already had the version
  int64_t size_bytes = 0;
  int64_t sent_bytes = 0;  // by the trainer's ranks together
  int64_t max_rank_sent_bytes = 0;
  std::optional<double> changed_share;  // of a delta
  double seconds = 0;
  weights::PhaseTimes times;  // begin, pack, gather, wire, verify, unpack, commit
  std::vector<Replica> replicas;
  std::vector<v1::UpdateLink> links;  // of the committed replicas
};

class WeightPublisher {
 public:
  struct Options {
    SendTransport* transport = nullptr;  // outlives the publisher
    int64_t incarnation = 0;
    UpdatePolicy policy = UpdatePolicy::kAll;
    // Of the groups in host memory; see GroupRendezvous.backend.
    std::string backend = "gloo";
    // Where the ranks that send keep the bytes: then replicas on GPUs get their bytes from GPU to
    // GPU where possible (weights::ChooseBackend()). Empty: always by `backend`.
    std::vector<common::v1::UpdatePlace> senders;
    bool shares_memory = true;     // ranks of one host may read each other's memory
    at::Device device = at::kCPU;  // of the leader's bytes
    int store_port = 0;            // 0: any
    // Address at which the replicas reach this host; empty: that of the route to the replicas.
    std::string advertise_host;
    absl::Duration blame_grace = absl::Seconds(5);
    // Under kAvailable: time for a replica to report its version, and for the ranks of an attempt
    // to join; shorter if the update's timeout is short.
    absl::Duration ask_timeout = absl::Seconds(10);
    absl::Duration join_timeout = absl::Seconds(30);
    comm::GroupMaker make_group = comm::CreateGroupOf;  // of the update's group
  };

  static absl::StatusOr<std::unique_ptr<WeightPublisher>> Create(Options options);

  // Sets the replicas' owner from the next update on; its incarnation is always the publisher's.
  // Before the first call: this incarnation, for no run.
  void SetOwner(common::v1::WeightOwner owner);

  // Under kAll: OK if every replica serves `version`. Under kAvailable: OK if at least one does;
  // the report says which. Returns at once if `version` is live everywhere. Errors:
  // INVALID_ARGUMENT for an empty list of replicas or one that names a replica twice; UNAVAILABLE
  // and DEADLINE_EXCEEDED for a replica that is lost or slow; FAILED_PRECONDITION with
  // UnloadedParams if the models differ, or with FOREIGN_TRAINER for a replica of another run;
  // DATA_LOSS names the tensor that arrived damaged; OUT_OF_RANGE: a replica reports an invalid
  // version.
  absl::StatusOr<PublishReport> Publish(int64_t version,
                                        const std::vector<ReplicaEndpoint>& replicas,
                                        absl::Duration timeout);

 private:
  struct Member {
    std::unique_ptr<ReplicaClient> client;
    std::string table_id;                         // tables it received last; empty: none
    bool failed = false;                          // the last call to it failed
    size_t result = 0;                            // index into the report's replicas
    std::vector<common::v1::UpdatePlace> places;  // by rank, as they reported last
    // The version it committed last, and the digests of its ranks; -1 if unknown.
    int64_t version = -1;
    std::vector<std::string> digests;
  };

  static std::vector<ReplicaClient*> Clients(const std::vector<Member*>& members);

  explicit WeightPublisher(Options options) : options_(std::move(options)) { SetOwner({}); }

  absl::StatusOr<PublishReport> PublishAll(int64_t version,
                                           const std::vector<ReplicaEndpoint>& replicas,
                                           absl::Time deadline);
  absl::Status UpdateMembers(const std::vector<ReplicaEndpoint>& replicas);
  // Queries the members' versions. Removes those that have `version` and, under kAvailable, those
  // that do not answer.
  absl::Status AskMembers(int64_t version, absl::Time deadline, PublishReport& report,
                          std::vector<Member*>& members);
  // Lets the members without the version read it from `sources`. Removes those that then have it
  // and, under kAvailable, those that failed on their own.
  absl::Status FeedByStream(int64_t version, absl::Time deadline,
                            const std::vector<Member*>& sources, PublishReport& report,
                            std::vector<Member*>& members);
  // Whether every member has the version that the trainer's ranks sent last.
  bool CanSendDelta(const std::vector<Member*>& members) const;
  // Whether every member has a version of this publisher, and with it the frozen tensors.
  bool CanKeepFrozen(const std::vector<Member*>& members) const;
  // Work left under kAvailable: the members of the chain, and those fed after it. `stranded`: live
  // members that could not be fed even alone.
  struct Remaining {
    std::vector<Member*> members;
    std::vector<Member*> apart;
    std::vector<Member*> stranded;
  };
  // Retries with fewer and fewer members until they have the version or none is left.
  absl::Status RunAttempts(int64_t version, absl::Time deadline, Remaining& remaining,
                           PublishReport& report);
  // Feeds the members outside the chain: from those that have the version, else one by one.
  absl::Status FeedApart(int64_t version, absl::Time deadline, Remaining& remaining,
                         PublishReport& report);
  // Runs one attempt for remaining.members. Members at fault for its failure leave `remaining`;
  // try_again says whether another attempt with the rest may succeed.
  absl::Status RunAttempt(int64_t version, absl::Time deadline, Remaining& remaining,
                          PublishReport& report, bool& try_again);
  // The steps of an attempt. Chooses between a delta and a whole update, with or without the frozen
  // tensors, and the deadlines.
  UpdateAttempt::Options PlanAttempt(int64_t version, absl::Time deadline,
                                     const Remaining& remaining) const;
  // Opens the update on every rank, and notes which tables the ranks have.
  absl::Status Begin(UpdateAttempt& attempt, const std::vector<Member*>& members,
                     weights::PhaseTimes& times);
  // Moves the bytes, and notes what the next delta's base is.
  absl::Status Transfer(int64_t version, UpdateAttempt& attempt,
                        const std::vector<Member*>& members, weights::PhaseTimes& times);
  // Makes the version live, and takes over the results.
  absl::Status Commit(int64_t version, UpdateAttempt& attempt, const std::vector<Member*>& members,
                      weights::PhaseTimes times, PublishReport& report);
  struct FailedAttempt {
    std::vector<Member*> healthy;   // members that are not to blame
    bool needs_everything = false;  // one of them: see UpdateAttempt
  };
  // After an attempt that was aborted: notes each member's own failure.
  FailedAttempt TakeFailures(const UpdateAttempt& attempt, Remaining& remaining,
                             PublishReport& report);
  // Whether another attempt may succeed, for which it sets remaining.members. `reused_group`: the
  // group was kept from an earlier update.
  bool PlanRetry(const UpdateAttempt& attempt, const absl::Status& status, bool reused_group,
                 FailedAttempt failed, Remaining& remaining, PublishReport& report);
  // After an attempt that failed with `status` and nobody to blame: changes the plan of the next
  // one. Returns false if there is nothing to change.
  bool ChangePlan(const UpdateAttempt& attempt, const absl::Status& status, Remaining& remaining,
                  PublishReport& report);
  // Moves the member out of the chain for this update and some later ones; it is fed after the
  // chain. `feeder` is empty for the trainer.
  void LeaveChain(Member* member, const std::string& feeder, Remaining& remaining);
  // Takes over the results of an attempt that reached its commits.
  void TakeResults(int64_t version, const UpdateAttempt& attempt,
                   const std::vector<Member*>& members, PublishReport& report);
  // Sorts members into feeding order.
  void Sort(std::vector<Member*>& members) const;
  // Moves members with doubtful links out of the chain, but leaves at least one in it.
  void SetApart(Remaining& remaining) const;
  // Prepares the rendezvous of the next attempt, with a new group if the last one does not fit.
  absl::Status PrepareRendezvous(const std::vector<Member*>& members, absl::Time deadline);
  // The backend of a group with these members.
  std::string BackendFor(const std::vector<Member*>& members) const;
  absl::StatusOr<comm::ProcessGroup*> GetGroup(int size, absl::Time join_by,
                                               const absl::Notification* cancel);
  // Serves the store at the address that the replicas receive.
  absl::Status ServeStoreAt(const std::string& host);
  void DropGroup();
  // Members that have the version.
  std::vector<Member*> Sources(const PublishReport& report);
  std::string AdvertiseHost(const std::vector<Member*>& members) const;

  const Options options_;
  common::v1::WeightOwner owner_;
  std::unique_ptr<comm::StoreServer>
      store_server_;                       // at rendezvous_'s address; null before it is needed
  std::map<std::string, Member> members_;  // by replica id
  LinkDoubts doubts_;

  // The group of the last update; null before the first and after a failure.
  std::unique_ptr<comm::ProcessGroup> group_;
  std::vector<std::string> group_members_;
  common::v1::GroupRendezvous rendezvous_;
  std::vector<std::unique_ptr<comm::StoreClient>> stores_;  // of the groups' prefixes
  int num_groups_ = 0;
  int64_t last_version_ = -1;
  // Digests of the whole tensors that were sent and committed last.
  int64_t digests_version_ = -1;
  TensorDigests digests_;
  // The last version that the trainer's ranks sent completely: the base of deltas.
  int64_t base_version_ = -1;
  int base_ranks_ = 0;              // ranks of the replica to which they sent it
  bool base_keeps_frozen_ = false;  // they sent only the trainable tensors
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_WEIGHT_PUBLISHER_H_
