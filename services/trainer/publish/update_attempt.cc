#include "services/trainer/publish/update_attempt.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/digest.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::trainer {
namespace {

using rollout::v1::AbortUpdateRequest;
using rollout::v1::AbortUpdateResponse;
using rollout::v1::BeginUpdateRequest;
using rollout::v1::BeginUpdateResponse;
using rollout::v1::CommitUpdateRequest;
using rollout::v1::CommitUpdateResponse;
using rollout::v1::VerifyUpdateRequest;
using rollout::v1::VerifyUpdateResponse;

constexpr absl::Duration kAbortTimeout = absl::Seconds(2);
constexpr absl::Duration kCommitRetryFor = absl::Seconds(10);
constexpr absl::Duration kCommitRetryPause = absl::Milliseconds(50);

std::string MakeUuid() {
  std::random_device device;
  const auto word = [&device] { return (static_cast<uint64_t>(device()) << 32) | device(); };
  const uint64_t a = word(), b = word();
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%012x", a >> 32, (a >> 16) & 0xffff, a & 0xfff,
                         0x8000 | ((b >> 48) & 0x3fff), b & 0xffffffffffff);
}

// Whether a rank's answer says that its transfer ended because the group did, not through its
// fault.
bool IsConsequence(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() && info->reason() == "TRANSFER_FAILED";
}

}  // namespace

UpdateAttempt::UpdateAttempt(const weights::TransferPlan& plan, Options options,
                             std::vector<ReplicaClient*> replicas)
    : plan_(plan),
      options_(std::move(options)),
      replicas_(std::move(replicas)),
      update_id_(MakeUuid()),
      failures_(replicas_.size()),
      committed_(replicas_.size(), false),
      pause_seconds_(replicas_.size(), 0) {}

UpdateAttempt::~UpdateAttempt() = default;

template <typename Request>
Request UpdateAttempt::MakeRequest() const {
  Request request;
  request.set_request_id(MakeUuid());
  request.set_incarnation(options_.incarnation);
  request.set_update_id(update_id_);
  return request;
}

absl::Status UpdateAttempt::Blame(int replica, int rank, const char* phase,
                                  const absl::Status& status) {
  absl::Status explained = replicas_[replica]->Explain(rank, phase, status);
  if (failures_[replica].ok()) failures_[replica] = explained;
  return explained;
}

absl::Status UpdateAttempt::FirstFailure() const {
  for (const absl::Status& failure : failures_) RETURN_IF_ERROR(failure);
  return absl::OkStatus();
}

absl::Status UpdateAttempt::Begin(bool with_manifest) {
  std::vector<int> first_rank;
  int size = 1;
  for (const ReplicaClient* replica : replicas_) {
    first_rank.push_back(size);
    size += replica->num_ranks();
  }
  RankCalls<BeginUpdateRequest, BeginUpdateResponse> calls(replicas_);
  calls.Start(&WeightServiceAsync::BeginUpdate, options_.deadline, [&](int replica, int rank) {
    auto request = MakeRequest<BeginUpdateRequest>();
    request.set_policy_version(options_.policy_version);
    request.set_manifest_digest(plan_.manifest.digest());
    if (with_manifest) {
      *request.mutable_manifest() = plan_.manifest;
      request.mutable_buckets()->Assign(plan_.buckets.begin(), plan_.buckets.end());
    }
    *request.mutable_rendezvous() = options_.rendezvous;
    request.mutable_rendezvous()->set_rank(first_rank[replica] + rank);
    request.mutable_rendezvous()->set_size(size);
    const int64_t left =
        std::max<int64_t>(1, absl::ToInt64Milliseconds(options_.deadline - absl::Now()));
    request.mutable_timeout()->set_seconds(left / 1000);
    request.mutable_timeout()->set_nanos(static_cast<int32_t>(left % 1000) * 1000000);
    request.set_transport(options_.transport);
    return request;
  });
  calls.WaitUntil(absl::InfiniteFuture());  // each call has the deadline
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    for (int rank = 0; rank < replicas_[replica]->num_ranks(); ++rank) {
      const auto& answer = calls.answers()[replica][rank];
      if (!answer.status.ok())
        Blame(replica, rank, "begin", answer.status).IgnoreError();
      else if (!answer.response.ready())
        needs_manifest_ = true;
    }
  }
  RETURN_IF_ERROR(FirstFailure());
  if (needs_manifest_) return absl::FailedPreconditionError("a rank has forgotten the manifest");
  return absl::OkStatus();
}

void UpdateAttempt::FailFast(const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  if (failed_fast_) return;
  failed_fast_ = true;
  cancel_.Notify();
  if (group_ != nullptr) group_->Abort(why.message());
}

absl::Status UpdateAttempt::Transfer(comm::StoreClient& store, const GetGroup& get_group,
                                     weights::Transport& transport, weights::BucketSource& source,
                                     weights::PhaseTimes& times) {
  const auto start = weights::PhaseTimes::Clock::now();
  RETURN_IF_ERROR(store.Set(absl::StrCat("go/", update_id_), "go"));
  // Asked now, answered when the last bucket is there: so a rank that goes down meanwhile is known
  // at once and by name, whatever the collective says.
  verify_calls_ = std::make_unique<VerifyCalls>(replicas_);
  verify_calls_->Start(
      &WeightServiceAsync::VerifyUpdate, options_.deadline + options_.blame_grace,
      [this](int, int) { return MakeRequest<VerifyUpdateRequest>(); },
      [this](int replica, int rank, const absl::Status& status) {
        FailFast(replicas_[replica]->Explain(rank, "transfer", status));
      });

  absl::StatusOr<comm::ProcessGroup*> group = get_group(&cancel_);
  if (!group.ok()) return Explain(group.status());
  {
    absl::MutexLock lock(&mu_);
    group_ = *group;
    if (failed_fast_) group_->Abort("a rank has failed");
  }
  (*group)->SetTimeout(std::max(absl::Milliseconds(1), options_.deadline - absl::Now()));
  times.Worked("begin", start);

  auto digests = transport.Send(plan_, **group, source, times);
  if (!digests.ok()) {
    (*group)->Abort("the update failed");
    {
      absl::MutexLock lock(&mu_);
      group_ = nullptr;
    }
    return Explain(digests.status());
  }
  digests_ = *std::move(digests);
  model_digest_ = weights::ModelDigest(digests_);
  absl::MutexLock lock(&mu_);
  group_ = nullptr;
  return absl::OkStatus();
}

absl::Status UpdateAttempt::Explain(const absl::Status& transfer) {
  // The ranks that live say at once that their transfer has ended; those that say nothing are the
  // cause.
  verify_calls_->WaitUntil(absl::Now() + options_.blame_grace);
  verify_calls_->Cancel();
  verify_calls_->WaitUntil(absl::InfiniteFuture());
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    for (int rank = 0; rank < replicas_[replica]->num_ranks(); ++rank) {
      absl::Status status = verify_calls_->answers()[replica][rank].status;
      if (status.ok() || IsConsequence(status)) continue;
      if (absl::IsCancelled(status)) {
        status = absl::DeadlineExceededError(
            absl::StrCat("no answer within ", absl::FormatDuration(options_.blame_grace),
                         " after the transfer had failed"));
      }
      Blame(replica, rank, "transfer", status).IgnoreError();
    }
  }
  RETURN_IF_ERROR(FirstFailure()) << "the transfer ended with: " << transfer.message();
  return transfer;
}

absl::Status UpdateAttempt::Verify(weights::PhaseTimes& times) {
  const auto start = weights::PhaseTimes::Clock::now();
  verify_calls_->WaitUntil(absl::InfiniteFuture());  // each call has the deadline
  double unpack = 0;
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    for (int rank = 0; rank < replicas_[replica]->num_ranks(); ++rank) {
      const auto& answer = verify_calls_->answers()[replica][rank];
      if (!answer.status.ok()) {
        Blame(replica, rank, "verify", answer.status).IgnoreError();
        continue;
      }
      for (const auto& phase : answer.response.phases()) {
        if (phase.phase() == "unpack") unpack = std::max(unpack, phase.busy());
      }
      int differ = 0;
      std::string first;
      if (answer.response.digests_size() != static_cast<int>(digests_.size())) {
        first = absl::StrCat("expected ", digests_.size(), " digests, found ",
                             answer.response.digests_size());
        differ = 1;
      }
      for (int i = 0; differ == 0 && i < static_cast<int>(digests_.size()); ++i) {
        const auto& theirs = answer.response.digests(i);
        if (theirs.digest() == digests_[i].digest() && theirs.name() == digests_[i].name())
          continue;
        first = absl::StrCat("tensor ", digests_[i].name(), " arrived with digest ",
                             theirs.digest(), ", ", digests_[i].digest(), " was sent");
        differ = 1;
      }
      if (differ > 0) Blame(replica, rank, "verify", absl::DataLossError(first)).IgnoreError();
    }
  }
  times.Worked("verify", start);
  times.Add("unpack", unpack, 0);  // hidden behind the wire; its tail is part of the wait above
  return FirstFailure();
}

absl::Status UpdateAttempt::Commit(weights::PhaseTimes& times) {
  const auto start = weights::PhaseTimes::Clock::now();
  const absl::Time give_up = std::min(options_.deadline, absl::Now() + kCommitRetryFor);
  std::vector<std::vector<bool>> done;
  for (const ReplicaClient* replica : replicas_) done.emplace_back(replica->num_ranks(), false);
  while (true) {
    RankCalls<CommitUpdateRequest, CommitUpdateResponse> calls(replicas_);
    calls.Start(
        &WeightServiceAsync::CommitUpdate, options_.deadline,
        [this](int, int) {
          auto request = MakeRequest<CommitUpdateRequest>();
          request.set_policy_version(options_.policy_version);
          request.set_model_digest(model_digest_);
          return request;
        },
        nullptr, [&](int replica, int rank) { return !done[replica][rank]; });
    calls.WaitUntil(absl::InfiniteFuture());
    bool again = false;
    for (auto& failure : failures_) failure = absl::OkStatus();
    for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
      for (int rank = 0; rank < replicas_[replica]->num_ranks(); ++rank) {
        if (done[replica][rank]) continue;
        const auto& answer = calls.answers()[replica][rank];
        if (answer.status.ok()) {
          done[replica][rank] = true;
          pause_seconds_[replica] =
              std::max(pause_seconds_[replica], answer.response.pause_seconds());
        } else {
          Blame(replica, rank, "commit", answer.status).IgnoreError();
          again |= absl::IsUnavailable(answer.status);
        }
      }
    }
    if (!again || absl::Now() + kCommitRetryPause >= give_up) break;
    absl::SleepFor(kCommitRetryPause);  // a commit can only be repeated
  }
  for (size_t i = 0; i < replicas_.size(); ++i) {
    committed_[i] = std::all_of(done[i].begin(), done[i].end(), [](bool rank) { return rank; });
  }
  times.Worked("commit", start);
  return FirstFailure();
}

void UpdateAttempt::Abort(const absl::Status& reason) {
  RankCalls<AbortUpdateRequest, AbortUpdateResponse> calls(replicas_);
  calls.Start(&WeightServiceAsync::AbortUpdate, absl::Now() + kAbortTimeout, [&](int, int) {
    auto request = MakeRequest<AbortUpdateRequest>();
    request.set_reason(std::string(reason.message().substr(0, 1024)));
    return request;
  });
  calls.WaitUntil(absl::InfiniteFuture());
}

}  // namespace tandem::trainer
