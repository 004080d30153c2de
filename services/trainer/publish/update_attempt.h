// UpdateAttempt: one run of the transaction begin, transfer, verify, commit over a set of replicas.
//
//   UpdateAttempt attempt(plane, options, replicas);
//   absl::Status status = attempt.Begin(known);
//   if (status.ok()) status = attempt.Transfer(...);   // while answers to VerifyUpdate are awaited
//   if (status.ok()) status = attempt.Verify();
//   if (status.ok()) status = attempt.Commit(); else attempt.Abort(status);   // see failures()
//
// Every wait ends by the deadline. Errors name replica, rank, phase and bucket or tensor. Threads:
// the leader's collective thread.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_UPDATE_ATTEMPT_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_UPDATE_ATTEMPT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "services/trainer/publish/data_plane.h"
#include "services/trainer/publish/rank_calls.h"
#include "services/trainer/publish/replica_client.h"
#include "services/trainer/publish/transfer_blame.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

class UpdateAttempt {
 public:
  struct Options {
    common::v1::WeightOwner owner;  // the trainer, whose incarnation every call names
    int64_t policy_version = 0;
    // Host, port, backend; the prefix is that of GroupPrefixes().
    common::v1::GroupRendezvous rendezvous;
    // A delta: the version that every replica has, and its digest by replica and rank.
    bool delta = false;
    int64_t base_version = -1;
    std::vector<std::vector<std::string>> base_digests;
    // By rank; not empty: one replica, which reads from there what another has. It joins no group.
    std::vector<std::string> stream_addresses;
    std::string stream_source;  // id of the replica that these are of
    absl::Time deadline;
    // In which the ranks find each other; infinite: until the deadline.
    absl::Duration join_timeout = absl::InfiniteDuration();
    // How long ranks that say nothing are waited for once the transfer has failed.
    absl::Duration blame_grace = absl::Seconds(5);
  };
  // Makes the update's group until `join_by`, or answers the one that is there. Waits end when
  // `cancel` is notified.
  using GetGroup = std::function<absl::StatusOr<comm::ProcessGroup*>(
      int size, absl::Time join_by, const absl::Notification* cancel)>;

  // The replicas are fed in their order: see DataPlane::TablesFor().
  UpdateAttempt(DataPlane& plane, Options options, std::vector<ReplicaClient*> replicas);
  ~UpdateAttempt();

  const std::string& update_id() const { return update_id_; }

  // The groups of an update of so many replicas: the leader's first, then one for each link of the
  // chain.
  static std::vector<std::string> GroupPrefixes(const DataPlane& plane, const std::string& prefix,
                                                size_t num_replicas);

  // Every rank is READY when it answers OK. `known`: by replica, the id of the tables that it was
  // told last; where one has others, all are told. needs_manifest() is true where a rank has
  // forgotten the manifest, so is another process than before: all must begin anew in a new group.
  absl::Status Begin(const std::vector<std::string>& known);
  bool needs_manifest() const { return needs_manifest_; }
  // After Begin(): what replica number `replica` has been told.
  const std::string& table_id(size_t replica) const { return tables_[replica].id; }
  // Whether Begin() has told them, which those that answered now have.
  bool told_tables() const { return told_tables_; }

  // `stores`: clients of the rendezvous store, one for each of GroupPrefixes().
  absl::Status Transfer(const std::vector<std::unique_ptr<comm::StoreClient>>& stores,
                        const GetGroup& get_group, weights::PhaseTimes& times);
  // Instead of Transfer() where a replica reads: the digests of the whole tensors that it is to
  // get.
  void ExpectStream(std::vector<weights::TensorDigest> digests);
  absl::Status Verify(weights::PhaseTimes& times);
  absl::Status Commit(weights::PhaseTimes& times);
  // Drops the update on every rank that can be reached.
  void Abort(const absl::Status& reason);

  const std::string& model_digest() const { return model_digest_; }
  const SendResult& sent() const { return sent_; }
  // By replica and rank: the digest of what the rank holds, after Verify().
  const std::vector<std::vector<std::string>>& rank_digests() const { return rank_digests_; }
  // What each link carried, after Verify(): by receiver, then by sender.
  const std::vector<v1::UpdateLink>& links() const { return links_; }
  // Of each replica: why it failed by itself, not because others did. All OK where nobody is to
  // blame.
  const std::vector<absl::Status>& failures() const { return failures_; }
  // Of each replica: whether it lives, but a rank of it cannot reach the rendezvous. failures()
  // says so.
  const std::vector<bool>& unreached() const { return unreached_; }
  // After a failed transfer for which nobody is to blame: the replica whose incoming link broke,
  // where that can be told.
  std::optional<int> broken_link() const { return broken_link_; }
  // Of each replica, after Commit().
  const std::vector<bool>& committed() const { return committed_; }
  const std::vector<double>& pause_seconds() const { return pause_seconds_; }

 private:
  using BeginCalls = RankCalls<rollout::v1::BeginUpdateRequest, rollout::v1::BeginUpdateResponse>;
  using VerifyCalls =
      RankCalls<rollout::v1::VerifyUpdateRequest, rollout::v1::VerifyUpdateResponse>;

  std::unique_ptr<BeginCalls> AskToBegin();
  // Aborts what ranks answer to be still open: an update of this trainer, which failed while they
  // could not be reached. True where there was one, so that all may be asked again.
  bool CloseLeftOpen(const BeginCalls& begun);
  absl::Status Blame(int replica, int rank, const char* phase, const absl::Status& status);
  absl::Status FirstFailure() const;
  // After a failed transfer: asks who is the cause. Answers the message for the caller, whose code
  // is one for a call that may be repeated, where it was the network.
  absl::Status Explain(const absl::Status& transfer);
  // Of the ranks that say that their transfer has ended, blames those that never came as far as the
  // rendezvous, or returns the link that broke.
  std::optional<int> FindCause();
  void FailFast(const absl::Status& why);
  void FillGroups(int replica, int rank, rollout::v1::BeginUpdateRequest& request) const;
  common::v1::GroupRendezvous GroupOf(const std::string& prefix, int rank, int size) const;
  SendOrder MakeOrder();
  void StartVerify();
  // Takes over what a rank says of its links, with the senders' names.
  void NoteLinks(int replica, int rank, const rollout::v1::VerifyUpdateResponse& response);
  // Of one replica, after all its ranks have answered: blames a rank that has other bytes.
  void CheckDigests(int replica);
  template <typename Request>
  Request MakeRequest() const;

  DataPlane& plane_;
  const Options options_;
  const std::vector<ReplicaClient*> replicas_;
  const std::string update_id_;
  std::vector<ReplicaTables> tables_;  // by replica
  bool needs_manifest_ = false;
  bool told_tables_ = false;
  SendResult sent_;
  std::string model_digest_;
  std::vector<std::vector<std::string>> rank_digests_;
  std::vector<v1::UpdateLink> links_;
  std::vector<absl::Status> failures_;
  std::vector<bool> unreached_;
  std::optional<int> broken_link_;
  std::vector<bool> committed_;
  std::vector<double> pause_seconds_;

  absl::Mutex mu_;
  comm::StoreClient* store_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the leader's group
  comm::ProcessGroup* group_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool failed_fast_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<TransferReport> reports_ ABSL_GUARDED_BY(mu_);  // as they came
  // Whether the first of them ended the transfer, rather than the leader's own group.
  bool ended_for_report_ ABSL_GUARDED_BY(mu_) = false;
  absl::Notification cancel_;
  std::unique_ptr<VerifyCalls> verify_calls_;  // its callbacks use the above
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_UPDATE_ATTEMPT_H_
