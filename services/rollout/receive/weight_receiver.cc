#include "services/rollout/receive/weight_receiver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/weights/broadcast_part.h"
#include "common/weights/manifest.h"
#include "common/weights/relay_table.h"
#include "common/weights/tensor_digests.h"
#include "services/rollout/receive/live_digests.h"
#include "services/rollout/receive/update_checks.h"

namespace tandem::rollout {
namespace {

// Updates that are over and still known by name, so that late and repeated calls get their answer.
constexpr size_t kMaxClosed = 64;

// After the deadline of an update: for a transfer that waits to say for which link.
constexpr absl::Duration kReportTime = absl::Milliseconds(300);

absl::Status NotOpen(const std::string& update_id, absl::string_view why) {
  return absl::NotFoundError(absl::StrCat("update ", update_id, " is not open: ", why));
}

absl::Status ShutDownError() { return absl::UnavailableError("the rollout is shutting down"); }

}  // namespace

WeightReceiver::WeightReceiver(WeightStore* store, StreamReader::Options stream,
                               RolloutOwner* owner)
    : store_(store),
      owner_(owner),
      transports_(*store, stream),
      worker_([this] { OnDeadline(); }) {}

WeightReceiver::~WeightReceiver() { Shutdown(); }

void WeightReceiver::Make(Calls& calls) {
  for (auto& call : calls) call();
  calls.clear();
}

v1::GetManifestResponse WeightReceiver::GetManifest() const {
  v1::GetManifestResponse response;
  *response.mutable_manifest() = store_->manifest();
  response.set_policy_version(store_->live_version());
  response.set_incarnation(store_->live_incarnation());
  *response.mutable_place() = store_->place();
  return response;
}

absl::Status WeightReceiver::CheckClaim(const v1::GetManifestRequest& request) const {
  return owner_ != nullptr && request.has_owner() ? owner_->Check(request.owner())
                                                  : absl::OkStatus();
}

absl::Status WeightReceiver::CheckIncarnation(int64_t incarnation) const {
  if (shut_down_) return ShutDownError();
  if (incarnation >= newest_incarnation_) return absl::OkStatus();
  return rpc::WithReason(
      absl::FailedPreconditionError(absl::StrCat("incarnation ", incarnation,
                                                 " is over; the newest is ", newest_incarnation_,
                                                 owner_ == nullptr ? "" : owner_->Describe())),
      "STALE_INCARNATION",
      {{"expected", absl::StrCat(newest_incarnation_)}, {"actual", absl::StrCat(incarnation)}});
}

absl::Status WeightReceiver::CheckVersion(const v1::BeginUpdateRequest& request) const {
  const int64_t live = store_->live_version();
  // Another trainer may give the number to other weights; together with its incarnation it is new.
  const bool is_new_at_live =
      request.repairs() || request.incarnation() != store_->live_incarnation();
  if (request.policy_version() > live || (request.policy_version() == live && is_new_at_live)) {
    return absl::OkStatus();
  }
  // Another run counts its own versions. So does a trainer that takes over: the former owner keeps
  // counting meanwhile, so no number is certain to be larger. Compared with the run whose version
  // is live, not with the owner, which a first attempt of that run has become already.
  const std::string& run_id = request.owner().run_id();
  const bool counts_for_itself =
      request.owner().take_over() || (!run_id.empty() && run_id != live_run_id_);
  if (counts_for_itself && request.incarnation() > store_->live_incarnation()) {
    return absl::OkStatus();
  }
  return rpc::WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "policy_version: expected more than ", live, ", which is live, from trainer incarnation ",
          store_->live_incarnation(), "; found ", request.policy_version())),
      "VERSION_NOT_NEWER",
      {{"live", absl::StrCat(live)}, {"actual", absl::StrCat(request.policy_version())}});
}

void WeightReceiver::EnterIncarnation(const common::v1::WeightOwner& claim, Calls& calls) {
  if (owner_ != nullptr) owner_->Accept(claim);
  if (claim.incarnation() == newest_incarnation_) return;
  if (open_ != nullptr && open_->state != State::kCommitting) {
    Close(open_,
          NotOpen(open_->request.update_id(),
                  absl::StrCat("incarnation ", claim.incarnation(), " has begun")),
          calls);
  }
  newest_incarnation_ = claim.incarnation();
  plan_ = nullptr;
}

const WeightReceiver::Closed* WeightReceiver::FindClosed(const std::string& update_id) const {
  for (const Closed& closed : closed_) {
    if (closed.update_id == update_id) return &closed;
  }
  return nullptr;
}

absl::StatusOr<WeightReceiver::UpdatePtr> WeightReceiver::FindOpen(
    const std::string& update_id) const {
  if (open_ != nullptr && open_->request.update_id() == update_id) return open_;
  if (const Closed* closed = FindClosed(update_id); closed != nullptr) {
    return closed->committed ? NotOpen(update_id, "it is committed") : closed->status;
  }
  return NotOpen(update_id, "it was never begun");
}

void WeightReceiver::Remember(Closed closed) {
  closed_.push_back(std::move(closed));
  if (closed_.size() > kMaxClosed) closed_.pop_front();
}

void WeightReceiver::Close(UpdatePtr update, absl::Status status, Calls& calls) {
  update->state = State::kClosed;
  if (!update->cancel.HasBeenNotified()) update->cancel.Notify();
  Closed closed;
  closed.update_id = update->request.update_id();
  closed.status = status;
  Remember(std::move(closed));
  open_ = nullptr;
  telemetry::LogWarning("weight update dropped", {{"update_id", update->request.update_id()},
                                                  {"version", update->request.policy_version()},
                                                  {"reason", status.message()}});
  auto waiters = std::make_shared<Update>();
  waiters->begin_waiters.swap(update->begin_waiters);
  waiters->verify_waiters.swap(update->verify_waiters);
  waiters->commit_waiters.swap(update->commit_waiters);
  // Queued behind the update's own task, which may still write the arena, and before the next
  // update's, which may start once mu_ is free and would lose its staged weights.
  worker_.Add([this] {
    transports_.Drop();
    store_->DropStaged();
  });
  calls.push_back([waiters, status, stop = update->transport->Stopper()] {
    stop(status.message());
    for (auto& waiter : waiters->begin_waiters) waiter(status);
    for (auto& waiter : waiters->verify_waiters) waiter(status);
    for (auto& waiter : waiters->commit_waiters) waiter(status);
  });
}

absl::StatusOr<bool> WeightReceiver::TakePlan(const v1::BeginUpdateRequest& request,
                                              Update& update) {
  if (!request.has_manifest()) {
    if (plan_ == nullptr || plan_->manifest.digest() != request.manifest_digest() ||
        plan_->keeps_frozen != request.keeps_frozen()) {
      return false;
    }
    update.plan = plan_;
    update.relayed = relayed_;
    return true;
  }
  if (request.manifest().digest() != request.manifest_digest()) {
    return rpc::InvalidField("manifest_digest",
                             absl::StrCat("expected ", request.manifest().digest(),
                                          ", as in manifest, found ", request.manifest_digest()));
  }
  RETURN_IF_ERROR(weights::CheckManifest(request.manifest()));
  RETURN_IF_ERROR(weights::CheckSameTensors(store_->manifest(), request.manifest()));
  ASSIGN_OR_RETURN(weights::TransferPlan plan, update.transport->CheckBuckets(request));
  RETURN_IF_ERROR(weights::CheckRelayed(plan, request.relayed()));
  plan_ = std::make_shared<const weights::TransferPlan>(std::move(plan));
  relayed_ = std::make_shared<const weights::RelayedBuckets>(request.relayed());
  update.plan = plan_;
  update.relayed = relayed_;
  return true;
}

void WeightReceiver::BeginUpdate(const v1::BeginUpdateRequest& request,
                                 Done<v1::BeginUpdateResponse> done) {
  Calls calls;
  const auto answer = [&](absl::StatusOr<v1::BeginUpdateResponse> response) {
    calls.push_back([done, response = std::move(response)] { done(response); });
  };
  const auto begin = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) -> absl::Status {
    ReceiveTransport* const transport = transports_.Find(request.transport());
    RETURN_IF_ERROR(CheckBeginRequest(request, transport));
    RETURN_IF_ERROR(CheckIncarnation(request.incarnation()));
    common::v1::WeightOwner claim = request.owner();
    claim.set_incarnation(request.incarnation());
    if (owner_ != nullptr) {
      RETURN_IF_ERROR(owner_->Check(claim));
    }
    v1::BeginUpdateResponse ready;
    ready.set_ready(true);
    if (const Closed* closed = FindClosed(request.update_id()); closed != nullptr) {
      RETURN_IF_ERROR(closed->status);
      answer(ready);
      return absl::OkStatus();
    }
    if (open_ != nullptr && open_->request.update_id() == request.update_id()) {
      if (!SameUpdate(open_->request, request)) {
        return rpc::InvalidField("update_id", "this update was begun with other contents");
      }
      if (open_->ready)
        answer(ready);
      else
        open_->begin_waiters.push_back(done);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckVersion(request));
    EnterIncarnation(claim, calls);
    if (open_ != nullptr) {
      return rpc::WithReason(
          absl::FailedPreconditionError(
              absl::StrCat("update ", open_->request.update_id(), " is open; abort it first")),
          "UPDATE_IN_PROGRESS", {{"update_id", open_->request.update_id()}});
    }
    RETURN_IF_ERROR(CheckBase(request, *store_));
    auto update = std::make_shared<Update>();
    update->transport = transport;
    ASSIGN_OR_RETURN(const bool known, TakePlan(request, *update));
    if (!known) {
      answer(v1::BeginUpdateResponse());
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const absl::Duration timeout, UpdateTimeout(request));
    update->deadline = absl::Now() + timeout;
    ASSIGN_OR_RETURN(update->join_timeout, JoinTimeout(request));
    update->request = request;
    update->request.clear_manifest();
    update->request.clear_buckets();
    update->request.clear_relayed();
    update->begin_waiters.push_back(done);
    open_ = update;
    worker_.SetAlarm(update->deadline);
    AddTask(
        update, [this, update] { RunUpdate(update); }, calls);
    return absl::OkStatus();
  };
  {
    absl::MutexLock lock(&mu_);
    if (const absl::Status status = begin(); !status.ok()) answer(status);
  }
  Make(calls);
}

void WeightReceiver::AddTask(const UpdatePtr& update, std::function<void()> task, Calls& calls) {
  if (!worker_.Add(std::move(task))) Close(update, ShutDownError(), calls);
}

void WeightReceiver::VerifyUpdate(const v1::VerifyUpdateRequest& request,
                                  Done<v1::VerifyUpdateResponse> done) {
  Calls calls;
  const auto verify = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) -> absl::Status {
    RETURN_IF_ERROR(CheckIncarnation(request.incarnation()));
    ASSIGN_OR_RETURN(const UpdatePtr update, FindOpen(request.update_id()));
    if (update->state == State::kBegun || update->state == State::kReceiving) {
      update->verify_waiters.push_back(done);
      return absl::OkStatus();
    }
    if (update->state == State::kStaged) update->state = State::kVerified;
    calls.push_back([done, response = update->verified] { done(response); });
    return absl::OkStatus();
  };
  {
    absl::MutexLock lock(&mu_);
    if (const absl::Status status = verify(); !status.ok())
      calls.push_back([done, status] { done(status); });
  }
  Make(calls);
}

void WeightReceiver::CommitUpdate(const v1::CommitUpdateRequest& request,
                                  Done<v1::CommitUpdateResponse> done) {
  Calls calls;
  const auto commit = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) -> absl::Status {
    RETURN_IF_ERROR(CheckIncarnation(request.incarnation()));
    if (const Closed* closed = FindClosed(request.update_id());
        closed != nullptr && closed->committed) {
      calls.push_back([done, response = closed->commit] { done(response); });
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const UpdatePtr update, FindOpen(request.update_id()));
    if (update->state != State::kVerified && update->state != State::kCommitting) {
      return absl::FailedPreconditionError(absl::StrCat(
          "update ", request.update_id(), " is not verified; call VerifyUpdate first"));
    }
    if (request.policy_version() != update->request.policy_version()) {
      return absl::FailedPreconditionError(absl::StrCat("policy_version: expected ",
                                                        update->request.policy_version(),
                                                        ", found ", request.policy_version()));
    }
    if (request.model_digest() != update->verified.model_digest()) {
      return absl::FailedPreconditionError(
          absl::StrCat("model_digest: ", update->verified.model_digest(), " is staged, found ",
                       request.model_digest()));
    }
    update->commit_waiters.push_back(done);
    if (update->state == State::kCommitting) return absl::OkStatus();
    update->state = State::kCommitting;
    AddTask(
        update, [this, update] { RunCommit(update); }, calls);
    return absl::OkStatus();
  };
  {
    absl::MutexLock lock(&mu_);
    if (const absl::Status status = commit(); !status.ok())
      calls.push_back([done, status] { done(status); });
  }
  Make(calls);
}

void WeightReceiver::RunCommit(const UpdatePtr& update) {
  {
    absl::MutexLock lock(&mu_);
    if (update->state == State::kClosed) return;
  }
  const int64_t version = update->request.policy_version();
  const absl::StatusOr<CommitResult> result =
      store_->Commit(version, update->request.incarnation(), update->verified.model_digest());
  absl::StatusOr<v1::CommitUpdateResponse> response = v1::CommitUpdateResponse();
  std::vector<Done<v1::CommitUpdateResponse>> waiters;
  {
    absl::MutexLock lock(&mu_);
    waiters.swap(update->commit_waiters);
    if (!result.ok()) {
      response = result.status();
      if (update->state == State::kCommitting) update->state = State::kVerified;  // to be repeated
    } else {
      Closed closed;
      closed.update_id = update->request.update_id();
      closed.committed = true;
      closed.commit.set_policy_version(version);
      closed.commit.set_pause_seconds(result->pause_seconds);
      closed.commit.set_num_recomputed_requests(result->num_recomputed_requests);
      closed.commit.set_num_aborted_requests(result->num_aborted_requests);
      response = closed.commit;
      Remember(std::move(closed));
      live_run_id_ = update->request.owner().run_id();
      update->state = State::kClosed;
      if (open_ == update) open_ = nullptr;
    }
  }
  if (response.ok()) {
    telemetry::LogInfo("weights committed", {{"pause_seconds", response->pause_seconds()},
                                             {"bytes", update->plan->total_bytes}});
  } else {
    worker_.SetAlarm(update->deadline);
  }
  for (auto& waiter : waiters) waiter(response);
}

absl::Status WeightReceiver::AbortUpdate(const v1::AbortUpdateRequest& request) {
  Calls calls;
  const auto abort = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) -> absl::Status {
    RETURN_IF_ERROR(CheckIncarnation(request.incarnation()));
    if (const Closed* closed = FindClosed(request.update_id()); closed != nullptr) {
      if (!closed->committed) return absl::OkStatus();
      return absl::FailedPreconditionError(
          absl::StrCat("update ", request.update_id(), " is committed"));
    }
    const absl::Status status =
        NotOpen(request.update_id(), absl::StrCat("it was aborted: ", request.reason()));
    if (open_ != nullptr && open_->request.update_id() == request.update_id()) {
      if (open_->state == State::kCommitting) {
        return absl::FailedPreconditionError(
            absl::StrCat("update ", request.update_id(), " is being committed"));
      }
      Close(open_, status, calls);
    } else if (!request.update_id().empty()) {
      // Its BeginUpdate may still be on the way.
      Closed closed;
      closed.update_id = request.update_id();
      closed.status = status;
      Remember(std::move(closed));
    }
    return absl::OkStatus();
  };
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    status = abort();
  }
  Make(calls);
  return status;
}

void WeightReceiver::OnDeadline() {
  Calls calls;
  {
    absl::MutexLock lock(&mu_);
    if (open_ == nullptr || open_->state == State::kCommitting) return;
    // A transfer ends by its own deadlines, which say which link it waits for.
    const bool receives = open_->state == State::kReceiving;
    const absl::Time due = open_->deadline + (receives ? kReportTime : absl::ZeroDuration());
    absl::Status status = absl::DeadlineExceededError(
        absl::StrCat("update ", open_->request.update_id(), " was not committed by its deadline"));
    if (receives) {
      status = rpc::WithReason(status, "TRANSFER_FAILED",
                               {{"phase", "transfer"}, {"link", "unknown"}, {"joined", "false"}});
    }
    if (absl::Now() < due) {
      calls.push_back([this, due] { worker_.SetAlarm(due); });
    } else {
      Close(open_, status, calls);
    }
  }
  Make(calls);
}

void WeightReceiver::GetDigests(Done<v1::GetDigestsResponse> done) {
  if (!worker_.Add([this, done] { done(DigestLive(*store_)); })) done(ShutDownError());
}

absl::StatusOr<std::unique_ptr<LiveStream>> WeightReceiver::OpenLive(
    const v1::ReadWeightsRequest& request) const {
  return LiveStream::Open(*store_, request);
}

bool WeightReceiver::RunSoon(std::function<void(WeightStore&)> body) {
  return worker_.Add([this, body = std::move(body)] { body(*store_); });
}

absl::Status WeightReceiver::RunExclusive(const std::function<absl::Status(WeightStore&)>& body) {
  absl::Status status;
  absl::Notification finished;
  const bool added = RunSoon([&](WeightStore& store) {
    status = body(store);
    finished.Notify();
  });
  if (!added) return ShutDownError();
  finished.WaitForNotification();
  return status;
}

int64_t WeightReceiver::updating_to() const {
  absl::MutexLock lock(&mu_);
  return open_ == nullptr ? -1 : open_->request.policy_version();
}

void WeightReceiver::Shutdown() {
  Calls calls;
  {
    absl::MutexLock lock(&mu_);
    shut_down_ = true;
    if (open_ != nullptr && open_->state != State::kCommitting)
      Close(open_, ShutDownError(), calls);
  }
  Make(calls);
  worker_.Stop();
}

}  // namespace tandem::rollout
