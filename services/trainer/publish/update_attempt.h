// UpdateAttempt: one run of the transaction begin, transfer, verify, commit over a set of replicas.
//
//   UpdateAttempt attempt(plan, options, replicas);
//   absl::Status status = attempt.Begin(with_manifest);
//   if (status.ok()) status = attempt.Transfer(...);    // while the ranks' answers to VerifyUpdate
//   are awaited if (status.ok()) status = attempt.Verify(); if (!status.ok()) {
//   attempt.Abort(status); ... attempt.failed() ... } else status = attempt.Commit();
//
// Every wait ends by the deadline. Errors name replica, rank, phase and bucket or tensor. Threads:
// the leader's collective thread.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_UPDATE_ATTEMPT_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_UPDATE_ATTEMPT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/transport.h"
#include "services/trainer/publish/rank_calls.h"
#include "services/trainer/publish/replica_client.h"

namespace tandem::trainer {

class UpdateAttempt {
 public:
  struct Options {
    int64_t incarnation = 0;
    int64_t policy_version = 0;
    std::string transport;
    common::v1::GroupRendezvous rendezvous;  // rank is filled in for each rank
    absl::Time deadline;
    // How long ranks that say nothing are waited for once the transfer has failed.
    absl::Duration blame_grace = absl::Seconds(5);
  };
  // Makes the update's group, or answers the one that is there. Waits end when `cancel` is
  // notified.
  using GetGroup =
      std::function<absl::StatusOr<comm::ProcessGroup*>(const absl::Notification* cancel)>;

  UpdateAttempt(const weights::TransferPlan& plan, Options options,
                std::vector<ReplicaClient*> replicas);
  ~UpdateAttempt();

  const std::string& update_id() const { return update_id_; }

  // Every rank is READY when it answers OK. needs_manifest() is true where a rank has forgotten the
  // manifest, so is another process than before: all must begin anew in a new group.
  absl::Status Begin(bool with_manifest);
  bool needs_manifest() const { return needs_manifest_; }

  absl::Status Transfer(comm::StoreClient& store, const GetGroup& get_group,
                        weights::Transport& transport, weights::BucketSource& source,
                        weights::PhaseTimes& times);
  absl::Status Verify(weights::PhaseTimes& times);
  absl::Status Commit(weights::PhaseTimes& times);
  // Drops the update on every rank that can be reached.
  void Abort(const absl::Status& reason);

  const std::string& model_digest() const { return model_digest_; }
  // Of each replica: why it failed by itself, not because others did. All OK where nobody is to
  // blame.
  const std::vector<absl::Status>& failures() const { return failures_; }
  // Of each replica, after Commit().
  const std::vector<bool>& committed() const { return committed_; }
  const std::vector<double>& pause_seconds() const { return pause_seconds_; }

 private:
  using VerifyCalls =
      RankCalls<rollout::v1::VerifyUpdateRequest, rollout::v1::VerifyUpdateResponse>;

  absl::Status Blame(int replica, int rank, const char* phase, const absl::Status& status);
  absl::Status FirstFailure() const;
  // After a failed transfer: asks who is the cause. Answers the message for the caller.
  absl::Status Explain(const absl::Status& transfer);
  void FailFast(const absl::Status& why);
  template <typename Request>
  Request MakeRequest() const;

  const weights::TransferPlan& plan_;
  const Options options_;
  const std::vector<ReplicaClient*> replicas_;
  const std::string update_id_;
  bool needs_manifest_ = false;
  std::vector<weights::TensorDigest> digests_;
  std::string model_digest_;
  std::vector<absl::Status> failures_;
  std::vector<bool> committed_;
  std::vector<double> pause_seconds_;

  absl::Mutex mu_;
  comm::ProcessGroup* group_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool failed_fast_ ABSL_GUARDED_BY(mu_) = false;
  absl::Notification cancel_;
  std::unique_ptr<VerifyCalls> verify_calls_;  // its callbacks use the above
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_UPDATE_ATTEMPT_H_
