// RolloutFleet's membership: replicas that join and leave, and the weight updates to them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/fleet_job.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {
namespace {

constexpr absl::Duration kInfoTimeout = absl::Seconds(10);
// Of counts for metrics, which a later step can have.
constexpr absl::Duration kShortInfoTimeout = absl::Seconds(3);
constexpr absl::Duration kEndTimeout = absl::Seconds(2);

}  // namespace

void RolloutFleet::OnChange() {
  std::vector<std::shared_ptr<Job>> waited;
  std::vector<std::string> notes;
  {
    absl::MutexLock lock(&mu_);
    std::vector<std::string> gone;
    for (const auto& [id, replica] : membership_.replicas()) {
      std::shared_ptr<Link>& link = links_[id];
      if (link == nullptr || !(link->replica == replica.address)) {
        if (link != nullptr) {
          for (Job* job : link->jobs) job->context->TryCancel();
          retired_links_.push_back(std::move(link));
        }
        link = std::make_shared<Link>();
        link->replica = replica.address;
        link->stub = rollout::v1::RolloutService::NewStub(
            rpc::MakeChannel(replica.address.address, {.retry = !options_.replicas_may_change}));
      }
      if (replica.state == ReplicaState::kLost) {
        for (Job* job : link->jobs) job->context->TryCancel();
      }
      if (!replica.is_in_list && link->jobs.empty()) gone.push_back(id);
    }
    for (const std::string& id : gone) {
      membership_.Forget(id);
      const auto link = links_.find(id);
      retired_links_.push_back(std::move(link->second));
      links_.erase(link);
    }
    notes = membership_.TakeNotes();
    waited.swap(waiting_);
  }
  if (options_.note) {
    for (const std::string& note : notes) options_.note(note);
  }
  for (const auto& job : waited) Place(job);
}

void RolloutFleet::Tick() {
  const absl::Time now = absl::Now();
  if (options_.members && now >= next_list_) {
    next_list_ = now + options_.membership.poll_interval;
    const std::vector<Replica> members = options_.members();
    absl::MutexLock lock(&mu_);
    membership_.SetMembers(members, now);
  }
  OnChange();
  std::vector<std::shared_ptr<Link>> unused;
  absl::MutexLock lock(&mu_);
  const auto first_unused =
      std::partition(retired_links_.begin(), retired_links_.end(),
                     [](const std::shared_ptr<Link>& link) { return !link->jobs.empty(); });
  unused.assign(first_unused, retired_links_.end());
  retired_links_.erase(first_unused, retired_links_.end());
}

void RolloutFleet::SetTrainer(int64_t incarnation, const std::string& run_id) {
  absl::MutexLock lock(&mu_);
  run_id_ = run_id;
  trainer_incarnation_ = incarnation;
  membership_.SetTrainer(incarnation);
}

// A GetServerInfo call to a replica, which counts as a heartbeat of its trainer's driver.
struct RolloutFleet::Heartbeat {
  std::shared_ptr<Link> link;
  bool has_ended = false;  // guarded by the fleet's lock
  std::unique_ptr<grpc::ClientContext> context;
  rollout::v1::GetServerInfoRequest request;
  rollout::v1::GetServerInfoResponse response;

  void Send(std::function<void(grpc::Status)> done) {
    link->stub->async()->GetServerInfo(context.get(), &request, &response, std::move(done));
  }
};

std::vector<std::shared_ptr<RolloutFleet::Heartbeat>> RolloutFleet::MakeHeartbeats(
    absl::Duration timeout) {
  std::vector<std::shared_ptr<Heartbeat>> heartbeats;
  for (const auto& [id, link] : links_) {
    const auto& heartbeat = heartbeats.emplace_back(std::make_shared<Heartbeat>());
    heartbeat->link = link;
    heartbeat->context = rpc::MakeContext(timeout);
    heartbeat->request.set_incarnation(trainer_incarnation_);
  }
  return heartbeats;
}

void RolloutFleet::SendHeartbeats() {
  std::vector<std::shared_ptr<Heartbeat>> heartbeats, ended;
  {
    absl::MutexLock lock(&mu_);
    // If replicas may change, the monitor's polls are the heartbeats.
    if (trainer_incarnation_ == 0 || options_.replicas_may_change) return;
    const auto first_ended = std::partition(
        heartbeats_.begin(), heartbeats_.end(),
        [](const std::shared_ptr<Heartbeat>& heartbeat) { return !heartbeat->has_ended; });
    ended.assign(first_ended, heartbeats_.end());
    heartbeats_.erase(first_ended, heartbeats_.end());
    heartbeats = MakeHeartbeats(kInfoTimeout);
    heartbeats_.insert(heartbeats_.end(), heartbeats.begin(), heartbeats.end());
  }
  for (const auto& heartbeat : heartbeats) {
    heartbeat->Send([this, sent = heartbeat.get()](const grpc::Status&) {
      absl::MutexLock lock(&mu_);
      sent->has_ended = true;
    });
  }
}

void RolloutFleet::EndHeartbeats() {
  absl::MutexLock lock(&mu_);
  for (const auto& heartbeat : heartbeats_) heartbeat->context->TryCancel();
  const auto all_ended = [this] {
    mu_.AssertHeld();
    return std::all_of(heartbeats_.begin(), heartbeats_.end(),
                       [](const auto& heartbeat) { return heartbeat->has_ended; });
  };
  // Each is cancelled and has a deadline, so this wait ends.
  mu_.Await(absl::Condition(&all_ended));
}

void RolloutFleet::EndRun() {
  std::vector<std::shared_ptr<Heartbeat>> heartbeats;
  {
    absl::MutexLock lock(&mu_);
    if (trainer_incarnation_ == 0 || run_id_.empty()) return;
    heartbeats = MakeHeartbeats(kEndTimeout);
    for (const auto& heartbeat : heartbeats) heartbeat->request.set_ended_run_id(run_id_);
  }
  absl::BlockingCounter answers(static_cast<int>(heartbeats.size()));
  for (const auto& heartbeat : heartbeats) {
    heartbeat->Send([&answers](const grpc::Status&) { answers.DecrementCount(); });
  }
  answers.Wait();  // each call has a deadline
}

absl::StatusOr<std::vector<RolloutFleet::Replica>> RolloutFleet::BeginPublish() {
  const absl::Time deadline = absl::Now() + options_.request_timeout;
  absl::MutexLock lock(&mu_);
  const auto all_have_answered = [this] {
    mu_.AssertHeld();
    return is_aborting_ || membership_.Count(ReplicaState::kJoining) == 0;
  };
  const auto any_is_reachable = [this] {
    mu_.AssertHeld();
    return is_aborting_ || membership_.AnyIsReachable();
  };
  if (options_.replicas_may_change) {
    // At the start, wait for all replicas, so that they get the first version together.
    if (membership_.version() < 0) {
      mu_.AwaitWithTimeout(absl::Condition(&all_have_answered), options_.poll_timeout);
    }
    mu_.AwaitWithDeadline(absl::Condition(&any_is_reachable), deadline);
  }
  std::vector<Replica> replicas =
      membership_.BeginPublish(/*with_joining=*/!options_.replicas_may_change, absl::Now());
  if (!replicas.empty()) return replicas;
  membership_.AbandonPublish(absl::Now());
  return absl::UnavailableError(
      absl::StrCat("no rollout to publish weights to: ", DescribeReplicas()));
}

void RolloutFleet::EndPublish(int64_t version, const std::set<std::string>& committed) {
  {
    absl::MutexLock lock(&mu_);
    membership_.EndPublish(version, committed, absl::Now());
  }
  OnChange();
}

void RolloutFleet::AbandonPublish() {
  {
    absl::MutexLock lock(&mu_);
    membership_.AbandonPublish(absl::Now());
  }
  OnChange();
}

bool RolloutFleet::WantsWeights() const {
  absl::MutexLock lock(&mu_);
  return options_.replicas_may_change && membership_.AnyWantsWeights(absl::Now());
}

bool RolloutFleet::AnyServes() const {
  absl::MutexLock lock(&mu_);
  return membership_.Count(ReplicaState::kServing) > 0;
}

int64_t RolloutFleet::version() const {
  absl::MutexLock lock(&mu_);
  return membership_.version();
}

std::vector<RolloutFleet::Replica> RolloutFleet::replicas() const {
  absl::MutexLock lock(&mu_);
  std::vector<Replica> out;
  for (const auto& [id, replica] : membership_.replicas()) out.push_back(replica.address);
  return out;
}

absl::StatusOr<rollout::v1::GetServerInfoResponse> RolloutFleet::GetServerInfo(
    const Replica& replica) {
  auto stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(replica.address));
  auto context = rpc::MakeContext(kInfoTimeout);
  rollout::v1::GetServerInfoResponse response;
  RETURN_IF_ERROR(rpc::FromGrpcStatus(stub->GetServerInfo(context.get(), {}, &response)))
      << "rollout " << replica.id << " at " << replica.address;
  RETURN_IF_ERROR(
      rpc::CheckReportedVersion(absl::StrCat("rollout ", replica.id, " at ", replica.address),
                                response.policy_version(), rpc::NoVersion::kAllowed));
  return response;
}

std::vector<rollout::v1::GetServerInfoResponse> RolloutFleet::GetServerInfos() const {
  // This thread destroys them: one of gRPC's that destroyed the last channel would wait for itself.
  struct Call {
    std::unique_ptr<rollout::v1::RolloutService::Stub> stub;
    std::unique_ptr<grpc::ClientContext> context;
    rollout::v1::GetServerInfoRequest request;
    rollout::v1::GetServerInfoResponse response;
    grpc::Status status;
  };
  std::vector<std::unique_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, replica] : membership_.replicas()) {
      if (replica.state == ReplicaState::kLost) continue;
      Call& call = *calls.emplace_back(std::make_unique<Call>());
      call.stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(replica.address.address));
      call.context = rpc::MakeContext(kShortInfoTimeout);
    }
  }
  absl::BlockingCounter left(static_cast<int>(calls.size()));
  for (const auto& call : calls) {
    call->stub->async()->GetServerInfo(call->context.get(), &call->request, &call->response,
                                       [&left, raw = call.get()](grpc::Status status) {
                                         raw->status = std::move(status);
                                         left.DecrementCount();
                                       });
  }
  left.Wait();  // every call has a deadline
  std::vector<rollout::v1::GetServerInfoResponse> out;
  for (const auto& call : calls) {
    if (call->status.ok()) out.push_back(std::move(call->response));
  }
  return out;
}

std::string RolloutFleet::DescribeReplicas() const {
  return absl::StrJoin(membership_.replicas(), ", ", [](std::string* out, const auto& entry) {
    const FleetMembership::Replica& replica = entry.second;
    absl::StrAppend(out, entry.first, " at ", replica.address.address, " is ",
                    NameOf(replica.state));
    if (replica.state == ReplicaState::kLost) absl::StrAppend(out, " (", replica.last_error, ")");
  });
}

std::map<std::string, double> RolloutFleet::TakeMetrics() {
  absl::MutexLock lock(&mu_);
  const auto count = [&](ReplicaState state) {
    mu_.AssertHeld();
    return static_cast<double>(membership_.Count(state));
  };
  const FleetMembership::Changes changes = membership_.TakeChanges();
  return {{"fleet/serving", count(ReplicaState::kServing) + count(ReplicaState::kUpdating)},
          {"fleet/joining", count(ReplicaState::kJoining)},
          {"fleet/stale", count(ReplicaState::kStale)},
          {"fleet/lost", count(ReplicaState::kLost)},
          {"fleet/draining", count(ReplicaState::kDraining)},
          {"fleet/backing_off", static_cast<double>(membership_.CountBackingOff(absl::Now()))},
          {"fleet/joined", static_cast<double>(changes.joined)},
          {"fleet/left", static_cast<double>(changes.left)},
          {"fleet/retried_requests", static_cast<double>(std::exchange(retried_requests_, 0))},
          {"fleet/kept_tokens", static_cast<double>(std::exchange(kept_tokens_, 0))},
          {"fleet/foreign_answers", static_cast<double>(std::exchange(foreign_answers_, 0))}};
}

}  // namespace tandem::driver
