#include "services/trainer/publish/update_attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/numerics.h"
#include "common/model/processor.h"
#include "common/rpc/new_uuid.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "common/weights/compare_digests.h"
#include "common/weights/tensor_digests.h"
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
constexpr absl::Duration kFailurePoll = absl::Milliseconds(20);
// A rank that ended its old connection says so at once; a lost one takes longer.
constexpr absl::Duration kQuickly = absl::Seconds(1);
constexpr absl::Duration kBeginRetryPause = absl::Milliseconds(100);
constexpr absl::Duration kCommitRetryFor = absl::Seconds(10);
constexpr absl::Duration kCommitRetryPause = absl::Milliseconds(50);

// Whether a rank's error only says that its transfer ended like that of others: then it is not to
// blame.
bool IsOfTheTransfer(const absl::Status& status) { return ParseTransferReport(status).has_value(); }

// The update may be retried, whatever code ended the wait here.
absl::Status AsUnavailable(const absl::Status& status) {
  if (!absl::IsCancelled(status) && !absl::IsAborted(status)) return status;
  return absl::UnavailableError(status.message());
}

// Sent buckets may still be in flight: by then only the last bucket of all is known.
std::string LastBucket(const RankTable& table) {
  if (table.buckets.empty() || table.buckets.back().pieces_size() == 0)
    return ", though everything";
  return absl::StrCat(
      ", though bucket ", table.buckets.size() - 1, " of ", table.buckets.size(), ", from ",
      table.manifest.tensors(table.buckets.back().pieces(0).tensor()).name(), ", the last one,");
}

}  // namespace

UpdateAttempt::UpdateAttempt(SendTransport& transport, const Route& route, Options options,
                             std::vector<ReplicaClient*> replicas)
    : transport_(transport),
      route_(route),
      options_(std::move(options)),
      replicas_(std::move(replicas)),
      update_id_(rpc::NewUuid()),
      failures_(replicas_.size()),
      unreached_(replicas_.size(), false),
      committed_(replicas_.size(), false),
      pause_seconds_(replicas_.size(), 0) {
  for (const ReplicaClient* replica : replicas_) rank_digests_.emplace_back(replica->num_ranks());
}

UpdateAttempt::~UpdateAttempt() = default;

template <typename Request>
Request UpdateAttempt::MakeRequest() const {
  Request request;
  request.set_incarnation(options_.owner.incarnation());
  request.set_update_id(update_id_);
  return request;
}

absl::Status UpdateAttempt::Blame(int replica, int rank, const char* phase,
                                  const absl::Status& status) {
  absl::Status explained = replicas_[replica]->Explain(rank, phase, status);
  if (failures_[replica].ok()) failures_[replica] = explained;
  return explained;
}

bool UpdateAttempt::needs_everything(size_t replica) const {
  const absl::Status& failure = failures_[replica];
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(failure);
  if (info.has_value() && info->reason() == "BASE_MISMATCH") return true;
  // The trainer's frozen tensors may have changed, for example because it loaded a checkpoint.
  return options_.keeps_frozen && absl::IsDataLoss(failure);
}

absl::Status UpdateAttempt::FirstFailure() const {
  for (const absl::Status& failure : failures_) RETURN_IF_ERROR(failure);
  return absl::OkStatus();
}

absl::Status UpdateAttempt::Begin(const std::vector<std::string>& known) {
  const telemetry::ScopedSpan span("begin");
  const std::vector<int> fleet = RanksOf(replicas_);
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    const absl::Status fits = transport_.CheckReplica(fleet[replica]);
    if (!fits.ok()) Blame(replica, 0, "begin", fits).IgnoreError();
  }
  RETURN_IF_ERROR(FirstFailure());
  ASSIGN_OR_RETURN(tables_, transport_.TablesFor(fleet, options_.keeps_frozen));
  for (size_t i = 0; i < tables_.size(); ++i) told_tables_ |= known[i] != tables_[i].id;
  const absl::Time start = absl::Now();
  std::unique_ptr<BeginCalls> calls = AskToBegin();
  if (AnyIsUnavailable(*calls) && absl::Now() - start < kQuickly) {
    // A rank that restarted at its address refuses what comes on the connection to its earlier
    // process (GOAWAY). The others know the repeat by its update_id.
    absl::SleepFor(kBeginRetryPause);
    calls = AskToBegin();
  }
  if (CloseLeftOpen(*calls)) calls = AskToBegin();
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    for (int rank = 0; rank < replicas_[replica]->num_ranks(); ++rank) {
      const auto& answer = calls->answers()[replica][rank];
      if (!answer.status.ok())
        Blame(replica, rank, "begin", answer.status).IgnoreError();
      else if (!answer.response.ready())
        needs_manifest_ = true;
    }
  }
  RETURN_IF_ERROR(FirstFailure());
  if (needs_manifest_)
    return absl::FailedPreconditionError("a rank lost the manifest: its process restarted");
  return absl::OkStatus();
}

std::unique_ptr<UpdateAttempt::BeginCalls> UpdateAttempt::AskToBegin() {
  auto calls = std::make_unique<BeginCalls>(replicas_);
  calls->Start(&WeightServiceAsync::BeginUpdate, options_.deadline, [&](int replica, int rank) {
    const RankTable& table = (*tables_[replica].ranks)[rank];
    auto request = MakeRequest<BeginUpdateRequest>();
    *request.mutable_owner() = options_.owner;
    request.set_policy_version(options_.policy_version);
    request.set_repairs(replicas_[replica]->repairs());
    request.set_manifest_digest(table.manifest.digest());
    if (told_tables_) {
      *request.mutable_manifest() = table.manifest;
      request.mutable_buckets()->Assign(table.buckets.begin(), table.buckets.end());
      if (tables_[replica].relayed != nullptr) {
        *request.mutable_relayed() = (*tables_[replica].relayed)[rank];
      }
    }
    if (model::CurrentNumerics() == model::Numerics::kExact) {
      request.set_instruction_sets(model::CurrentProcessor());
    }
    route_.Fill(replicas_, {replica, rank}, options_.delta, options_.rendezvous, request);
    request.set_keeps_frozen(options_.keeps_frozen);
    if (options_.delta || options_.keeps_frozen) {
      request.set_base_version(options_.base_versions[replica]);
      request.set_base_model_digest(options_.base_digests[replica][rank]);
    }
    const int64_t left =
        std::max<int64_t>(1, absl::ToInt64Milliseconds(options_.deadline - absl::Now()));
    *request.mutable_timeout() = rpc::ToProto(absl::Milliseconds(left));
    if (options_.join_timeout < absl::InfiniteDuration()) {
      *request.mutable_join_timeout() = rpc::ToProto(options_.join_timeout);
    }
    return request;
  });
  calls->WaitUntil(absl::InfiniteFuture());  // each call has the deadline
  return calls;
}

bool UpdateAttempt::AnyIsUnavailable(const BeginCalls& begun) {
  for (const auto& replica : begun.answers()) {
    for (const auto& answer : replica) {
      if (absl::IsUnavailable(answer.status)) return true;
    }
  }
  return false;
}

bool UpdateAttempt::CloseLeftOpen(const BeginCalls& begun) {
  const auto left_open = [&](int replica, int rank) -> std::string {
    const auto info = rpc::GetDetail<common::v1::ErrorInfo>(begun.answers()[replica][rank].status);
    if (!info.has_value() || info->reason() != "UPDATE_IN_PROGRESS") return "";
    const auto id = info->metadata().find("update_id");
    return id == info->metadata().end() ? "" : id->second;
  };
  bool any = false;
  RankCalls<AbortUpdateRequest, AbortUpdateResponse> calls(replicas_);
  calls.Start(
      &WeightServiceAsync::AbortUpdate, std::min(options_.deadline, absl::Now() + kAbortTimeout),
      [&](int replica, int rank) {
        auto request = MakeRequest<AbortUpdateRequest>();
        request.set_update_id(left_open(replica, rank));
        request.set_reason("it failed while this rank could not be reached");
        return request;
      },
      nullptr,
      [&](int replica, int rank) {
        const bool open = !left_open(replica, rank).empty();
        any |= open;
        return open;
      });
  calls.WaitUntil(absl::InfiniteFuture());
  return any;
}

void UpdateAttempt::FailFast(const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  if (failed_fast_) return;
  failed_fast_ = true;
  cancel_.Notify();
  if (group_ != nullptr) group_->Abort(why.message());
  // If the store does not respond either, the other trainer ranks continue until the deadline.
  if (store_ != nullptr) store_->Set(absl::StrCat("abort/", update_id_), "abort").IgnoreError();
}

SendOrder UpdateAttempt::MakeOrder() {
  SendOrder order;
  order.update_id = update_id_;
  order.rendezvous = GroupOf(options_.rendezvous, options_.rendezvous.prefix(), 0,
                             transport_.route().LeaderGroupSize(replicas_));
  order.deadline = options_.deadline;
  order.delta = options_.delta;
  order.keeps_frozen = options_.keeps_frozen;
  order.fleet = RanksOf(replicas_);
  order.call_off = [this] { FailFast(absl::AbortedError("the transfer failed")); };
  return order;
}

absl::Status UpdateAttempt::Transfer(const std::vector<std::unique_ptr<comm::StoreClient>>& stores,
                                     const GetGroup& get_group, weights::PhaseTimes& times) {
  const telemetry::ScopedSpan span("transfer");
  const auto start = weights::PhaseTimes::Clock::now();
  for (const auto& store : stores) {
    RETURN_IF_ERROR(store->Set(absl::StrCat("go/", update_id_), "go"));
  }
  {
    absl::MutexLock lock(&mu_);
    store_ = stores.front().get();
  }
  StartVerify();
  const SendOrder order = MakeOrder();
  if (const absl::Status ordered = transport_.Order(order); !ordered.ok()) {
    FailFast(ordered);
    return Explain(ordered);
  }
  absl::StatusOr<comm::ProcessGroup*> group =
      get_group(order.rendezvous.size(),
                std::min(options_.deadline, absl::Now() + options_.join_timeout), &cancel_);
  if (!group.ok()) {
    FailFast(group.status());
    return Explain(group.status());
  }
  {
    absl::MutexLock lock(&mu_);
    group_ = *group;
    if (failed_fast_) group_->Abort("a rank has failed");
  }
  (*group)->SetTimeout(std::max(absl::Milliseconds(1), options_.deadline - absl::Now()));
  times.Worked("begin", start);

  auto sent = transport_.Send(**group, order, times);
  if (!sent.ok()) (*group)->Abort("the update failed");
  {
    absl::MutexLock lock(&mu_);
    group_ = nullptr;
  }
  if (!sent.ok()) {
    FailFast(sent.status());
    return Explain(sent.status());
  }
  sent_ = *std::move(sent);
  model_digest_ = weights::ModelDigest(sent_.digests);
  return absl::OkStatus();
}

void UpdateAttempt::StartVerify() {
  // Sent now, answered once the last bucket has arrived: this reports a rank that dies meanwhile at
  // once and by name, whatever the collective reports.
  verify_calls_ = std::make_unique<VerifyCalls>(replicas_);
  verify_calls_->Start(
      &WeightServiceAsync::VerifyUpdate, options_.deadline + options_.blame_grace,
      [this](int, int) { return MakeRequest<VerifyUpdateRequest>(); },
      [this](int replica, int rank, const absl::Status& status) {
        if (auto report = ParseTransferReport(status); report.has_value()) {
          report->replica = replica;
          report->rank = rank;
          absl::MutexLock lock(&mu_);
          report->after_abort = ended_for_report_;
          ended_for_report_ |= !failed_fast_;
          reports_.push_back(*report);
        }
        // Other ranks fail as a consequence; only the cause is named.
        FailFast(IsOfTheTransfer(status) ? absl::AbortedError("a replica's transfer has ended")
                                         : replicas_[replica]->Explain(rank, "transfer", status));
      });
}

void UpdateAttempt::ExpectStream(std::vector<weights::TensorDigest> digests) {
  sent_.digests = std::move(digests);
  model_digest_ = weights::ModelDigest(sent_.digests);
  StartVerify();
}

absl::Status UpdateAttempt::Explain(const absl::Status& transfer) {
  // Live ranks report at once that their transfer has ended; silent ones are the cause, unless
  // another rank says that it is.
  verify_calls_->WaitUntil(absl::Now() + options_.blame_grace);
  verify_calls_->Cancel();
  verify_calls_->WaitUntil(absl::InfiniteFuture());
  std::string seen;                         // by a rank that waited in vain: it knows the bucket
  std::vector<std::pair<int, int>> silent;  // replica and rank
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    for (int rank = 0; rank < replicas_[replica]->num_ranks(); ++rank) {
      const absl::Status& status = verify_calls_->answers()[replica][rank].status;
      if (status.ok()) continue;
      if (IsOfTheTransfer(status)) {
        if (seen.empty()) {
          seen = absl::StrCat("; where it stood: ",
                              replicas_[replica]->Explain(rank, "transfer", status).message());
        }
      } else if (absl::IsCancelled(status)) {
        silent.emplace_back(replica, rank);
      } else {
        Blame(replica, rank, "transfer", status).IgnoreError();
      }
    }
  }
  const std::optional<int> broken_link = FindCause();
  // Other errors that end a transfer, such as a secret that does not match, are the trainer's own
  // fault.
  const bool of_a_peer = absl::IsUnavailable(transfer) || absl::IsDeadlineExceeded(transfer) ||
                         absl::IsAborted(transfer) || absl::IsCancelled(transfer);
  if (FirstFailure().ok() && of_a_peer) {
    // Otherwise they may be waiting for the rank that is the cause.
    for (const auto& [replica, rank] : silent) {
      Blame(replica, rank, "transfer",
            absl::DeadlineExceededError(absl::StrCat("no answer within ",
                                                     absl::FormatDuration(options_.blame_grace),
                                                     " after the transfer had failed")))
          .IgnoreError();
    }
  }
  if (FirstFailure().ok()) broken_link_ = broken_link;
  RETURN_IF_ERROR(FirstFailure()) << "the transfer ended with: " << transfer.message();
  RETURN_IF_ERROR(AsUnavailable(transfer)) << "phase transfer" << seen;
  return absl::OkStatus();
}

std::optional<int> UpdateAttempt::FindCause() {
  std::vector<TransferReport> reports;
  {
    absl::MutexLock lock(&mu_);
    reports = reports_;
  }
  const std::vector<TransferReport> unreached = Unreached(reports);
  for (const TransferReport& report : unreached) {
    unreached_[report.replica] = true;
    const absl::Status& status = verify_calls_->answers()[report.replica][report.rank].status;
    Blame(report.replica, report.rank, "rendezvous",
          absl::UnavailableError(absl::StrCat("it cannot reach the trainer's rendezvous at ",
                                              options_.rendezvous.host(), ":",
                                              options_.rendezvous.port(), ": ", status.message())))
        .IgnoreError();
  }
  if (!unreached.empty()) return std::nullopt;
  return route_.BrokenLink(reports, static_cast<int>(replicas_.size()));
}

absl::Status UpdateAttempt::Verify(weights::PhaseTimes& times) {
  const telemetry::ScopedSpan span("verify");
  const auto start = weights::PhaseTimes::Clock::now();
  // Each call has the deadline; after a failure, do not wait for the others until then.
  while (!verify_calls_->WaitUntil(absl::Now() + kFailurePoll)) {
    if (cancel_.HasBeenNotified()) break;
  }
  if (cancel_.HasBeenNotified()) {
    return Explain(
        absl::AbortedError(absl::StrCat("a replica has not received everything",
                                        LastBucket(tables_[0].ranks->front()), " was sent")));
  }
  double unpack = 0;
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    for (int rank = 0; rank < replicas_[replica]->num_ranks(); ++rank) {
      const auto& answer = verify_calls_->answers()[replica][rank];
      for (const auto& phase : answer.response.phases()) {
        if (phase.phase() == "unpack") unpack = std::max(unpack, phase.busy());
      }
      NoteLinks(replica, rank, answer.response);
      rank_digests_[replica][rank] = weights::ModelDigest(
          {answer.response.digests().begin(), answer.response.digests().end()});
    }
    CheckDigests(replica);
  }
  times.Worked("verify", start);
  times.Add("unpack", unpack, 0);  // hidden behind the wire; its tail is part of the wait above
  return FirstFailure();
}

void UpdateAttempt::NoteLinks(int replica, int rank,
                              const rollout::v1::VerifyUpdateResponse& response) {
  for (const common::v1::LinkReport& report : response.links()) {
    v1::UpdateLink& link = links_.emplace_back();
    link.set_from(route_.SenderName(replicas_, {replica, rank}, report.from()));
    link.set_to(absl::StrCat(replicas_[replica]->id(), "/", rank));
    link.set_size_bytes(report.size_bytes());
    link.set_seconds(report.seconds());
    link.set_transport(report.transport());
  }
}

void UpdateAttempt::CheckDigests(int replica) {
  const auto& answers = verify_calls_->answers()[replica];
  std::vector<weights::RankDigests> ranks;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    ranks.push_back({&(*tables_[replica].ranks)[rank].manifest, &answers[rank].response.digests()});
  }
  const weights::DigestList sent(sent_.digests.begin(), sent_.digests.end());
  const auto differences = weights::CompareDigests(sent, ranks);
  if (!differences.ok()) {
    Blame(replica, 0, "verify", differences.status()).IgnoreError();
    return;
  }
  if (differences->empty()) return;
  const weights::DigestDifference& first = differences->front();
  const bool all_ranks = first.rank == weights::DigestDifference::kAllRanks;
  Blame(replica, all_ranks ? 0 : first.rank, "verify",
        absl::DataLossError(absl::StrCat(
            "tensor ", first.tensor, " arrived with digest ", first.found,
            all_ranks ? " in the parts of all ranks, " : ", ", first.expected, " was sent; ",
            differences->size(), " of ", sent.size(), " tensors differ")))
      .IgnoreError();
}

absl::Status UpdateAttempt::Commit(weights::PhaseTimes& times) {
  const telemetry::ScopedSpan span("commit");
  const auto start = weights::PhaseTimes::Clock::now();
  const absl::Time give_up = std::min(options_.deadline, absl::Now() + kCommitRetryFor);
  std::vector<std::vector<bool>> done;
  for (const ReplicaClient* replica : replicas_) done.emplace_back(replica->num_ranks(), false);
  while (true) {
    RankCalls<CommitUpdateRequest, CommitUpdateResponse> calls(replicas_);
    calls.Start(
        &WeightServiceAsync::CommitUpdate, options_.deadline,
        [this](int replica, int rank) {
          auto request = MakeRequest<CommitUpdateRequest>();
          request.set_policy_version(options_.policy_version);
          request.set_model_digest(rank_digests_[replica][rank]);
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
          again |= absl::IsUnavailable(answer.status) || absl::IsDataLoss(answer.status);
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
