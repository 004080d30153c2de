// WeightPublisher: makes the trainer's current weights live on the rollouts, as one transaction.
//
//   ASSIGN_OR_RETURN(auto publisher, WeightPublisher::Create(options));          // the leader
//   ASSIGN_OR_RETURN(PublishReport report, publisher->Publish(version, replicas, timeout));
//   // The other ranks, at the same place in their order of collectives: see the data plane's
//   // header.
//
// It serves the rendezvous store of the update groups, holds the channels to the replicas, and
// keeps the group and the agreement on the manifest from one update to the next; both are made anew
// when the set of replicas changes, when a replica has restarted, and after a failure.
//
// Where some replicas have the version already and the plane is one in which replicas feed each
// other, those that lack it read it from them (stream_feed.h); what remains is the plane's.
//
// Where replicas feed each other, those with more ranks come first, whatever the order in which
// they are given (fleet_tables.h).
//
// Under kAvailable every attempt that fails changes what the next one tries: replicas that are to
// blame are left out; where nobody is, the one whose incoming link broke (transfer_blame.h) goes
// apart: it reads the version from those that have it once they do, or else gets it from the
// trainer by itself. So it does in the updates that follow, for a while (link_doubts.h).
//
// Threads: Publish() is called on the leader's collective thread and blocks, at most until its
// timeout (and a few seconds in which a failed update is taken back). Each call lets the other
// ranks' Follow() return, whatever happens, unless the trainer's own group is broken.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_WEIGHT_PUBLISHER_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_WEIGHT_PUBLISHER_H_

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
#include "services/trainer/publish/data_plane.h"
#include "services/trainer/publish/link_doubts.h"
#include "services/trainer/publish/replica_client.h"
#include "services/trainer/publish/stream_feed.h"
#include "services/trainer/publish/update_attempt.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::trainer {

// What an update does when some replicas fail.
enum class UpdatePolicy {
  kAll,        // a failure before the first commit aborts everywhere; the old version serves
  kAvailable,  // the others go on without them
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
  std::string model_digest;  // empty where every replica had the version already
  int64_t size_bytes = 0;
  int64_t sent_bytes = 0;  // by the trainer's ranks together
  int64_t max_rank_sent_bytes = 0;
  std::optional<double> changed_share;  // of a delta
  double seconds = 0;
  weights::PhaseTimes times;  // begin, pack, gather, wire, verify, unpack, commit
  std::vector<Replica> replicas;
  std::vector<v1::UpdateLink> links;  // of those that committed
};

class WeightPublisher {
 public:
  struct Options {
    DataPlane* plane = nullptr;  // outlives the publisher
    int64_t incarnation = 0;
    UpdatePolicy policy = UpdatePolicy::kAll;
    std::string backend = "gloo";  // see GroupRendezvous.backend
    int store_port = 0;            // 0: any
    // Address at which the replicas reach this host; empty: that of the route to the replicas.
    std::string advertise_host;
    absl::Duration blame_grace = absl::Seconds(5);
    // Under kAvailable: in which a replica says what it has, and the ranks of an attempt find each
    // other; less where the update's timeout is short.
    absl::Duration ask_timeout = absl::Seconds(10);
    absl::Duration join_timeout = absl::Seconds(30);
    comm::GroupMaker make_group = comm::CreateGroupOf;  // of the update's group
  };

  static absl::StatusOr<std::unique_ptr<WeightPublisher>> Create(Options options);

  // Who the replicas belong to from the next update on; its incarnation is the publisher's. Before
  // the first call: this incarnation, for no run.
  void SetOwner(common::v1::WeightOwner owner);

  // Under kAll: OK where every replica serves `version`. Under kAvailable: OK where at least one
  // does; the report says which. A repeat of a version that is live everywhere answers at once.
  // Errors: INVALID_ARGUMENT for a list of replicas that is empty or names one twice; UNAVAILABLE
  // and DEADLINE_EXCEEDED for a replica that is lost or slow; FAILED_PRECONDITION with
  // UnloadedParams where the models differ, or with FOREIGN_TRAINER for a replica of another run;
  // DATA_LOSS names the tensor that arrived damaged; OUT_OF_RANGE a replica that reports a version
  // that is none.
  absl::StatusOr<PublishReport> Publish(int64_t version,
                                        const std::vector<ReplicaEndpoint>& replicas,
                                        absl::Duration timeout);

 private:
  struct Member {
    std::unique_ptr<ReplicaClient> client;
    std::string table_id;  // of what it was told last; empty: it knows nothing
    bool failed = false;   // when it was last spoken to
    size_t result = 0;     // index into the report's replicas
    // What it committed last, and the digests of its ranks; -1 where that is not known.
    int64_t version = -1;
    std::vector<std::string> digests;
  };

  static std::vector<ReplicaClient*> Clients(const std::vector<Member*>& members);

  explicit WeightPublisher(Options options) : options_(std::move(options)) { SetOwner({}); }

  absl::StatusOr<PublishReport> PublishAll(int64_t version,
                                           const std::vector<ReplicaEndpoint>& replicas,
                                           absl::Time deadline);
  absl::Status UpdateMembers(const std::vector<ReplicaEndpoint>& replicas);
  // Asks the members where they stand; takes out those that have the version and, under kAvailable,
  // those that do not answer.
  absl::Status AskMembers(int64_t version, absl::Time deadline, PublishReport& report,
                          std::vector<Member*>& members);
  // Lets those who lack the version read it from `sources`. Takes out those that have it then and,
  // under kAvailable, those that failed by themselves.
  absl::Status FeedByStream(int64_t version, absl::Time deadline,
                            const std::vector<Member*>& sources, PublishReport& report,
                            std::vector<Member*>& members);
  // Whether every member has what the trainer's ranks sent last.
  bool CanSendDelta(const std::vector<Member*>& members) const;
  // What is still to be done, under kAvailable: those of the chain, and those that come after it.
  // `stranded`: those that live, and could not be fed even by themselves.
  struct Remaining {
    std::vector<Member*> members;
    std::vector<Member*> apart;
    std::vector<Member*> stranded;
  };
  // Tries with fewer and fewer members until they have the version or none is left.
  absl::Status RunAttempts(int64_t version, absl::Time deadline, Remaining& remaining,
                           PublishReport& report);
  // Of those that come after the chain: from those that have the version, else by themselves.
  absl::Status FeedApart(int64_t version, absl::Time deadline, Remaining& remaining,
                         PublishReport& report);
  // One attempt for remaining.members. Those that are to blame for its failure leave `remaining`;
  // try_again says whether another attempt, with what `remaining` is by then, may do better.
  absl::Status RunAttempt(int64_t version, absl::Time deadline, Remaining& remaining,
                          PublishReport& report, bool& try_again);
  // After an attempt that failed with `status` and nobody to blame: changes what the next one
  // tries. False where there is nothing to change.
  bool ChangePlan(const UpdateAttempt& attempt, const absl::Status& status, Remaining& remaining,
                  PublishReport& report);
  // It is fed after the chain, in this update and some of the next; `feeder` is empty for the
  // trainer.
  void LeaveChain(Member* member, const std::string& feeder, Remaining& remaining);
  // Takes over what came of an attempt that went as far as its commits.
  void TakeResults(int64_t version, const UpdateAttempt& attempt,
                   const std::vector<Member*>& members, PublishReport& report);
  // The order in which members are fed.
  void Sort(std::vector<Member*>& members) const;
  // Moves those whose links are in doubt out of the chain, of which somebody stays.
  void SetApart(Remaining& remaining) const;
  // Makes the rendezvous of the next attempt, and its group new where the last one's does not fit.
  absl::Status PrepareRendezvous(const std::vector<Member*>& members, absl::Time deadline);
  absl::StatusOr<comm::ProcessGroup*> GetGroup(int size, absl::Time join_by,
                                               const absl::Notification* cancel);
  // Serves the store where the replicas are told that it is.
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
  // What was sent and committed last, by whole tensors.
  int64_t digests_version_ = -1;
  TensorDigests digests_;
  // The version that the trainer's ranks sent last and completely, which a delta goes out from.
  int64_t base_version_ = -1;
  int base_ranks_ = 0;  // of the replica to which they sent it
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_WEIGHT_PUBLISHER_H_
