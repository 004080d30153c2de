// UpdateAttempt: one run of the transaction begin, transfer, verify, commit over a set of replicas.
//
//   UpdateAttempt attempt(transport, transport.route(), options, replicas);
//   absl::Status status = attempt.Begin(known);
//   if (status.ok()) status = attempt.Transfer(stores, get_group, times);
//   if (status.ok()) status = attempt.Verify(times);   // its calls are in flight since Transfer()
//   if (status.ok()) status = attempt.Commit(times);
//   if (!status.ok()) attempt.Abort(status);           // see failures()
//
// Every wait ends at the deadline. Errors name replica, rank, phase and bucket or tensor. Threads:
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
#include "services/trainer/publish/rank_calls.h"
#include "services/trainer/publish/replica_client.h"
#include "services/trainer/publish/send_transport.h"
#include "services/trainer/publish/transfer_blame.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

class UpdateAttempt {
 public:
  struct Options {
    common::v1::WeightOwner owner;  // the trainer, whose incarnation every call carries
    int64_t policy_version = 0;
    // Host, port, backend, and the prefix of the leader's group.
    common::v1::GroupRendezvous rendezvous;
    bool delta = false;
    bool keeps_frozen = false;  // the replicas keep their frozen tensors, which are not sent
    // With either of these: by replica, its live version, and that version's digest by rank.
    std::vector<int64_t> base_versions;
    std::vector<std::vector<std::string>> base_digests;
    absl::Time deadline;
    // Time for the ranks to join the rendezvous; infinite: until the deadline.
    absl::Duration join_timeout = absl::InfiniteDuration();
    // After a failed transfer, how long to wait for ranks that have not reported.
    absl::Duration blame_grace = absl::Seconds(5);
  };
  // Creates the update's group until `join_by`, or returns the existing one. Waits end when
  // `cancel` is notified.
  using GetGroup = std::function<absl::StatusOr<comm::ProcessGroup*>(
      int size, absl::Time join_by, const absl::Notification* cancel)>;

  // Feeds the replicas in their order: see SendTransport::TablesFor(). `route`: the transport's, or
  // a StreamRoute for a single replica, with ExpectStream() in place of Transfer(). Both outlive the
  // attempt.
  UpdateAttempt(SendTransport& transport, const Route& route, Options options,
                std::vector<ReplicaClient*> replicas);
  ~UpdateAttempt();

  const std::string& update_id() const { return update_id_; }
  bool keeps_frozen() const { return options_.keeps_frozen; }

  // Returns OK when every rank is READY. `known`: by replica, the id of the tables it received
  // last; if one differs, all receive the new tables. needs_manifest() is true if a rank lost its
  // manifest because its process restarted: all must then restart in a new group.
  absl::Status Begin(const std::vector<std::string>& known);
  bool needs_manifest() const { return needs_manifest_; }
  // After Begin(): the id of the tables of replica number `replica`.
  const std::string& table_id(size_t replica) const { return tables_[replica].id; }
  // Whether Begin() sent the tables; the replicas that answered then have them.
  bool told_tables() const { return told_tables_; }

  // `stores`: clients of the rendezvous store, one for each of the route's GroupPrefixes().
  absl::Status Transfer(const std::vector<std::unique_ptr<comm::StoreClient>>& stores,
                        const GetGroup& get_group, weights::PhaseTimes& times);
  // Replaces Transfer() for a replica that pulls: sets the digests expected of its whole tensors.
  void ExpectStream(std::vector<weights::TensorDigest> digests);
  absl::Status Verify(weights::PhaseTimes& times);
  absl::Status Commit(weights::PhaseTimes& times);
  // Aborts the update on every reachable rank.
  void Abort(const absl::Status& reason);

  const std::string& model_digest() const { return model_digest_; }
  const SendResult& sent() const { return sent_; }
  // By replica and rank: the digest of the rank's tensors, after Verify().
  const std::vector<std::vector<std::string>>& rank_digests() const { return rank_digests_; }
  // Bytes that each link carried, after Verify(): by receiver, then by sender.
  const std::vector<v1::UpdateLink>& links() const { return links_; }
  // By replica: its own failure, not one that others caused. All OK if nobody is to blame.
  const std::vector<absl::Status>& failures() const { return failures_; }
  // Whether the replica refused the base, or, keeping frozen tensors, has others than the trainer:
  // another attempt must send everything.
  bool needs_everything(size_t replica) const;
  // By replica: it lives, but one of its ranks cannot reach the rendezvous. failures() says so.
  const std::vector<bool>& unreached() const { return unreached_; }
  // After a failed transfer for which nobody is to blame: the replica whose incoming link broke, if
  // known.
  std::optional<int> broken_link() const { return broken_link_; }
  // By replica, after Commit().
  const std::vector<bool>& committed() const { return committed_; }
  const std::vector<double>& pause_seconds() const { return pause_seconds_; }

 private:
  using BeginCalls = RankCalls<rollout::v1::BeginUpdateRequest, rollout::v1::BeginUpdateResponse>;
  using VerifyCalls =
      RankCalls<rollout::v1::VerifyUpdateRequest, rollout::v1::VerifyUpdateResponse>;

  std::unique_ptr<BeginCalls> AskToBegin();
  static bool AnyIsUnavailable(const BeginCalls& begun);
  // Aborts updates that ranks report as still open: earlier ones of this trainer that failed while
  // the ranks were unreachable. Returns true if there was one; the caller can then retry.
  bool CloseLeftOpen(const BeginCalls& begun);
  absl::Status Blame(int replica, int rank, const char* phase, const absl::Status& status);
  absl::Status FirstFailure() const;
  // After a failed transfer: finds the cause. Returns the caller's error; for a network failure its
  // code allows a retry.
  absl::Status Explain(const absl::Status& transfer);
  // Among the ranks that report a failed transfer, blames those that never reached the rendezvous,
  // or returns the link that broke.
  std::optional<int> FindCause();
  void FailFast(const absl::Status& why);
  SendOrder MakeOrder();
  void StartVerify();
  // Stores a rank's report of its links, with the senders' names.
  void NoteLinks(int replica, int rank, const rollout::v1::VerifyUpdateResponse& response);
  // Call once all ranks of the replica have answered: blames a rank whose bytes differ.
  void CheckDigests(int replica);
  template <typename Request>
  Request MakeRequest() const;

  SendTransport& transport_;
  const Route& route_;
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
  std::vector<TransferReport> reports_ ABSL_GUARDED_BY(mu_);  // in order of arrival
  // Whether the first of them ended the transfer, rather than the leader's own group.
  bool ended_for_report_ ABSL_GUARDED_BY(mu_) = false;
  absl::Notification cancel_;
  std::unique_ptr<VerifyCalls> verify_calls_;  // its callbacks use the above
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_UPDATE_ATTEMPT_H_
