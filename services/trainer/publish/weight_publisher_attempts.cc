// Runs an update's attempts one after another, each without the replicas that failed before.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/local_address.h"
#include "common/net/host_port.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/weights/update_place.h"
#include "services/trainer/publish/weight_publisher.h"

namespace tandem::trainer {
namespace {

using Clock = weights::PhaseTimes::Clock;

// Whether a transfer failed because of the network between trainer and replicas, or among replicas.
bool IsOfTheNetwork(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

std::string WeightPublisher::AdvertiseHost(const std::vector<Member*>& members) const {
  if (!options_.advertise_host.empty()) return options_.advertise_host;
  // One address for all: loopback only where every replica is on this host.
  std::string loopback = "127.0.0.1";
  for (const Member* member : members) {
    for (const std::string& address : member->client->endpoint().rank_addresses) {
      const auto replica = net::ParseHostPort(address);
      if (!replica.ok()) continue;
      const auto local = comm::LocalAddressTowards(replica->host);
      if (local.ok() && !absl::StartsWith(*local, "127.") && *local != "::1") return *local;
    }
  }
  return loopback;
}

// Uses the rendezvous's secret.
absl::Status WeightPublisher::ServeStoreAt(const std::string& host) {
  if (store_server_ != nullptr && rendezvous_.host() == host) return absl::OkStatus();
  store_server_.reset();  // its port may be fixed
  ASSIGN_OR_RETURN(store_server_, comm::StoreServer::Start({.host = host,
                                                            .port = options_.store_port,
                                                            .secret = rendezvous_.secret()}));
  rendezvous_.set_host(host);
  rendezvous_.set_port(store_server_->port());
  return absl::OkStatus();
}

void WeightPublisher::DropGroup() {
  if (group_ != nullptr) group_->Abort("recreating the update group");
  group_.reset();
  stores_.clear();
  group_members_.clear();
}

std::string WeightPublisher::BackendFor(const std::vector<Member*>& members) const {
  if (options_.senders.empty()) return options_.backend;
  std::vector<common::v1::UpdatePlace> places = options_.senders;
  for (const Member* member : members) {
    places.insert(places.end(), member->places.begin(), member->places.end());
  }
  return weights::ChooseBackend({options_.backend, options_.shares_memory}, places,
                                security::DataPlaneOfProcess());
}

absl::StatusOr<comm::ProcessGroup*> WeightPublisher::GetGroup(int size, absl::Time join_by,
                                                              const absl::Notification* cancel) {
  if (group_ != nullptr) return group_.get();
  comm::GroupOptions options;
  options.name = "update";
  options.family = "update";
  options.rank = 0;
  options.size = size;
  options.rendezvous = {rendezvous_.host(), rendezvous_.port(), rendezvous_.prefix(),
                        rendezvous_.secret()};
  options.timeout = std::max(absl::Milliseconds(1), join_by - absl::Now());
  options.cancel = cancel;
  ASSIGN_OR_RETURN(auto made, options_.make_group(rendezvous_.backend(), options));
  ASSIGN_OR_RETURN(group_,
                   comm::CarryTensorsOf(options_.device, rendezvous_.backend(), std::move(made)));
  return group_.get();
}

bool WeightPublisher::CanSendDelta(const std::vector<Member*>& members) const {
  return options_.transport->sends_deltas() && base_version_ >= 0 &&
         members.front()->client->num_ranks() == base_ranks_ &&
         std::all_of(members.begin(), members.end(),
                     [this](const Member* member) { return member->version == base_version_; });
}

bool WeightPublisher::CanKeepFrozen(const std::vector<Member*>& members) const {
  return options_.transport->can_keep_frozen() &&
         std::all_of(members.begin(), members.end(), [](const Member* member) {
           return member->version >= 0 && !member->client->repairs();
         });
}

void WeightPublisher::Sort(std::vector<Member*>& members) const {
  const auto candidate = [this](const Member* member) -> GroupRoute::Candidate {
    return {member->client->num_ranks(), doubts_.IsLast(member->client->id())};
  };
  std::stable_sort(members.begin(), members.end(), [&](const Member* a, const Member* b) {
    return options_.transport->route().FeedsBefore(candidate(a), candidate(b));
  });
}

void WeightPublisher::SetApart(Remaining& remaining) const {
  if (options_.policy == UpdatePolicy::kAll || remaining.members.empty()) return;
  const auto left = [this](const Member* member) {
    return doubts_.UpdatesLeft(member->client->id());
  };
  const auto stays =
      std::min_element(remaining.members.begin(), remaining.members.end(),
                       [&](const Member* a, const Member* b) { return left(a) < left(b); });
  std::vector<Member*> chain;
  for (Member* member : remaining.members) {
    (member == *stays || left(member) == 0 ? chain : remaining.apart).push_back(member);
  }
  remaining.members = std::move(chain);
}

absl::Status WeightPublisher::RunAttempts(int64_t version, absl::Time deadline,
                                          Remaining& remaining, PublishReport& report) {
  absl::Status status;
  for (bool try_again = true; !remaining.members.empty() && try_again;) {
    status = RunAttempt(version, deadline, remaining, report, try_again);
  }
  for (const Member* member : remaining.members) {
    auto& result = report.replicas[member->result];
    if (!result.committed && result.error.ok()) result.error = status;
  }
  return status;
}

std::vector<WeightPublisher::Member*> WeightPublisher::Sources(const PublishReport& report) {
  std::vector<Member*> sources;
  for (auto& [id, member] : members_) {
    if (report.replicas[member.result].committed) sources.push_back(&member);
  }
  return sources;
}

absl::Status WeightPublisher::FeedApart(int64_t version, absl::Time deadline, Remaining& remaining,
                                        PublishReport& report) {
  absl::Status status = FeedByStream(version, deadline, Sources(report), report, remaining.apart);
  while (!remaining.apart.empty() && absl::Now() < deadline) {
    Remaining one{.members = {remaining.apart.back()}, .apart = {}, .stranded = {}};
    remaining.apart.pop_back();
    // Leaves time for the members after it.
    const absl::Time until =
        absl::Now() + (deadline - absl::Now()) / (remaining.apart.empty() ? 1 : 2);
    status = RunAttempts(version, until, one, report);
    remaining.stranded.insert(remaining.stranded.end(), one.stranded.begin(), one.stranded.end());
  }
  if (!remaining.stranded.empty() && absl::Now() < deadline) {
    status = FeedByStream(version, deadline, Sources(report), report, remaining.stranded);
  }
  // The next update asks whether they can be reached, before it waits for them.
  for (Member* member : remaining.stranded) {
    member->table_id.clear();
    member->failed = true;
  }
  return status;
}

absl::Status WeightPublisher::PrepareRendezvous(const std::vector<Member*>& members,
                                                absl::Time deadline) {
  std::vector<std::string> ids;
  for (const Member* member : members) ids.push_back(member->client->id());
  const bool all_know = std::all_of(members.begin(), members.end(),
                                    [](const Member* m) { return !m->table_id.empty(); });
  if (group_members_ != ids || !all_know || group_ == nullptr || !group_->status().ok())
    DropGroup();
  // A new secret for each attempt: earlier ones no longer grant access.
  rendezvous_.set_secret(security::DrawSecret());
  stores_.clear();
  if (store_server_ != nullptr) store_server_->SetSecret(rendezvous_.secret());
  if (group_ == nullptr) {
    RETURN_IF_ERROR(ServeStoreAt(AdvertiseHost(members)));
    rendezvous_.set_backend(BackendFor(members));
    rendezvous_.set_prefix(absl::StrCat("update/", options_.incarnation, "/", num_groups_++));
    group_members_ = ids;
  }
  for (const std::string& prefix : options_.transport->route().GroupPrefixes(
           rendezvous_.prefix(), static_cast<int>(members.size()))) {
    ASSIGN_OR_RETURN(auto store,
                     comm::StoreClient::Connect({store_server_->local_host(), rendezvous_.port(),
                                                 prefix, rendezvous_.secret()},
                                                deadline - absl::Now()));
    stores_.push_back(std::move(store));
  }
  return absl::OkStatus();
}

void WeightPublisher::TakeResults(int64_t version, const UpdateAttempt& attempt,
                                  const std::vector<Member*>& members, PublishReport& report) {
  report.model_digest = attempt.model_digest();
  report.sent_bytes += attempt.sent().sent_bytes;
  report.max_rank_sent_bytes += attempt.sent().max_rank_sent_bytes;
  report.changed_share = attempt.sent().changed_share;
  report.links.insert(report.links.end(), attempt.links().begin(), attempt.links().end());
  digests_version_ = version;
  digests_ = attempt.sent().digests;
  for (size_t i = 0; i < members.size(); ++i) {
    auto& result = report.replicas[members[i]->result];
    result.committed = attempt.committed()[i];
    result.error = attempt.failures()[i];
    result.pause_seconds = attempt.pause_seconds()[i];
    members[i]->version = result.committed ? version : -1;
    members[i]->digests = attempt.rank_digests()[i];
    if (result.committed) {
      doubts_.OnCarried(members[i]->client->id());
    } else {
      members[i]->table_id.clear();
      members[i]->failed = true;
    }
  }
}

void WeightPublisher::LeaveChain(Member* member, const std::string& feeder, Remaining& remaining) {
  const std::string& id = member->client->id();
  remaining.apart.push_back(member);
  doubts_.OnBroken(id, feeder);
  telemetry::LogWarning("a live replica cannot be reached in the chain; feeding it separately",
                        {{"replica", id},
                         {"fed_by", feeder.empty() ? "trainer" : feeder},
                         {"updates", doubts_.UpdatesLeft(id)}});
}

bool WeightPublisher::ChangePlan(const UpdateAttempt& attempt, const absl::Status& status,
                                 Remaining& remaining, PublishReport& report) {
  // No other plan helps against a fault of the trainer itself.
  if (!IsOfTheNetwork(status)) return false;
  std::vector<Member*>& members = remaining.members;
  const std::optional<int> broken = attempt.broken_link();
  if (members.size() == 1) {
    report.replicas[members[0]->result].error = status;
    remaining.stranded.push_back(members[0]);
    members.clear();
  } else if (!broken.has_value()) {
    // One at a time: then the fault is known.
    for (Member* member : members) {
      report.replicas[member->result].error = status;
      remaining.apart.push_back(member);
    }
    members.clear();
  } else {
    report.replicas[members[*broken]->result].error = status;
    LeaveChain(members[*broken], *broken == 0 ? "" : members[*broken - 1]->client->id(), remaining);
    members.erase(members.begin() + *broken);
  }
  return !members.empty();
}

UpdateAttempt::Options WeightPublisher::PlanAttempt(int64_t version, absl::Time deadline,
                                                    const Remaining& remaining) const {
  const std::vector<Member*>& members = remaining.members;
  const bool available = options_.policy == UpdatePolicy::kAvailable;
  UpdateAttempt::Options options;
  options.owner = owner_;
  options.policy_version = version;
  options.rendezvous = rendezvous_;
  options.delta = CanSendDelta(members);
  options.keeps_frozen = options.delta ? base_keeps_frozen_ : CanKeepFrozen(members);
  for (const Member* member : members) {
    options.base_versions.push_back(member->version);
    options.base_digests.push_back(member->digests);
  }
  // Under kAvailable a stalled replica must leave the others time to continue without it.
  options.deadline = available && members.size() + remaining.apart.size() > 1
                         ? absl::Now() + (deadline - absl::Now()) / 2
                         : deadline;
  options.blame_grace = options_.blame_grace;
  if (available) {
    options.join_timeout = std::min(options_.join_timeout, (options.deadline - absl::Now()) / 3);
  }
  return options;
}

absl::Status WeightPublisher::Begin(UpdateAttempt& attempt, const std::vector<Member*>& members,
                                    weights::PhaseTimes& times) {
  const auto start = Clock::now();
  std::vector<std::string> known;
  for (const Member* member : members) known.push_back(member->table_id);
  const absl::Status status = attempt.Begin(known);
  if (!status.ok() && attempt.told_tables()) {
    // Some ranks may have them and others not.
    for (Member* member : members) member->table_id.clear();
  }
  times.Worked("begin", start);
  if (!status.ok()) return status;
  for (size_t i = 0; i < members.size(); ++i) members[i]->table_id = attempt.table_id(i);
  return absl::OkStatus();
}

absl::Status WeightPublisher::Transfer(int64_t version, UpdateAttempt& attempt,
                                       const std::vector<Member*>& members,
                                       weights::PhaseTimes& times) {
  base_version_ = -1;  // until all of it has been sent
  RETURN_IF_ERROR(attempt.Transfer(
      stores_,
      [&](int size, absl::Time join_by, const absl::Notification* cancel) {
        return GetGroup(size, join_by, cancel);
      },
      times));
  base_version_ = version;
  base_ranks_ = members.front()->client->num_ranks();
  base_keeps_frozen_ = attempt.keeps_frozen();
  return absl::OkStatus();
}

absl::Status WeightPublisher::Commit(int64_t version, UpdateAttempt& attempt,
                                     const std::vector<Member*>& members, weights::PhaseTimes times,
                                     PublishReport& report) {
  const absl::Status status = attempt.Commit(times);
  report.times = std::move(times);
  TakeResults(version, attempt, members, report);
  if (status.ok()) return status;
  DropGroup();
  RETURN_IF_ERROR(status) << "other replicas have committed; publish again once it is back";
  return absl::OkStatus();
}

WeightPublisher::FailedAttempt WeightPublisher::TakeFailures(const UpdateAttempt& attempt,
                                                             Remaining& remaining,
                                                             PublishReport& report) {
  const std::vector<Member*>& members = remaining.members;
  FailedAttempt failed;
  for (size_t i = 0; i < members.size(); ++i) {
    const absl::Status& failure = attempt.failures()[i];
    if (failure.ok()) {
      failed.healthy.push_back(members[i]);
      if (attempt.needs_manifest()) members[i]->table_id.clear();
      continue;
    }
    members[i]->table_id.clear();
    if (attempt.needs_everything(i)) {
      failed.healthy.push_back(members[i]);
      members[i]->version = -1;  // forces a full update
      failed.needs_everything = true;
      continue;
    }
    report.replicas[members[i]->result].error = failure;
    const bool can_be_apart = options_.policy == UpdatePolicy::kAvailable && members.size() > 1;
    if (can_be_apart && attempt.unreached()[i]) {
      LeaveChain(members[i], "", remaining);
    } else {
      members[i]->failed = true;
    }
  }
  return failed;
}

bool WeightPublisher::PlanRetry(const UpdateAttempt& attempt, const absl::Status& status,
                                bool reused_group, FailedAttempt failed, Remaining& remaining,
                                PublishReport& report) {
  const bool available = options_.policy == UpdatePolicy::kAvailable;
  if (failed.healthy.size() < remaining.members.size()) {
    if (!available) return false;
    remaining.members = std::move(failed.healthy);
    return !remaining.members.empty();
  }
  // A replica has another base than expected, a rank restarted, or a connection broke while the
  // group was idle: retry in a new group.
  const bool went_idle = reused_group && !(available && absl::IsDeadlineExceeded(status));
  if (failed.needs_everything || attempt.needs_manifest() || went_idle) return true;
  return available && ChangePlan(attempt, status, remaining, report);
}

absl::Status WeightPublisher::RunAttempt(int64_t version, absl::Time deadline, Remaining& remaining,
                                         PublishReport& report, bool& try_again) {
  try_again = false;
  std::vector<Member*>& members = remaining.members;
  Sort(members);
  RETURN_IF_ERROR(PrepareRendezvous(members, deadline));
  const bool reused_group = group_ != nullptr;
  UpdateAttempt attempt(*options_.transport, options_.transport->route(),
                        PlanAttempt(version, deadline, remaining), Clients(members));

  weights::PhaseTimes times = report.times;
  absl::Status trainers_group;
  absl::Status status = Begin(attempt, members, times);
  if (status.ok()) {
    status = Transfer(version, attempt, members, times);
    trainers_group = options_.transport->Drain();
  }
  if (status.ok()) status = attempt.Verify(times);
  if (status.ok()) return Commit(version, attempt, members, std::move(times), report);

  DropGroup();
  attempt.Abort(status);
  if (!trainers_group.ok()) {  // so there is nothing that could be tried again
    RETURN_IF_ERROR(status) << "the trainer's group: " << trainers_group.message();
  }
  FailedAttempt failed = TakeFailures(attempt, remaining, report);
  try_again = PlanRetry(attempt, status, reused_group, std::move(failed), remaining, report) &&
              absl::Now() < deadline;
  if (try_again) {
    telemetry::LogWarning(
        "restarting the weight update",
        {{"version", version}, {"replicas", members.size()}, {"reason", status.message()}});
  }
  return status;
}

}  // namespace tandem::trainer
