#include "services/trainer/publish/weight_publisher.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/comm/local_address.h"
#include "common/net/host_port.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/weights/digest.h"
#include "services/trainer/publish/rank_calls.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::trainer {
namespace {

using rollout::v1::GetManifestRequest;
using rollout::v1::GetManifestResponse;
using ManifestCalls = RankCalls<GetManifestRequest, GetManifestResponse>;
using Clock = weights::PhaseTimes::Clock;

// Longer than a channel's first pauses between attempts to connect.
constexpr absl::Duration kReconnectFor = absl::Seconds(3);
constexpr absl::Duration kReconnectPause = absl::Milliseconds(100);

// Whether a replica refused a delta, for it has another version than the delta goes out from.
bool HasOtherBase(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() && info->reason() == "BASE_MISMATCH";
}

std::vector<ReplicaClient*> Clients(const auto& members) {
  std::vector<ReplicaClient*> clients;
  for (const auto* member : members) clients.push_back(member->client.get());
  return clients;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightPublisher>> WeightPublisher::Create(Options options) {
  if (options.plane == nullptr) return absl::InvalidArgumentError("a publisher needs a plane");
  return absl::WrapUnique(new WeightPublisher(std::move(options)));
}

void WeightPublisher::SetOwner(common::v1::WeightOwner owner) {
  owner_ = std::move(owner);
  owner_.set_incarnation(options_.incarnation);
}

absl::StatusOr<PublishReport> WeightPublisher::Publish(int64_t version,
                                                       const std::vector<ReplicaEndpoint>& replicas,
                                                       absl::Duration timeout) {
  const auto start = Clock::now();
  const absl::Time deadline = absl::Now() + timeout;
  options_.plane->Begin(deadline);
  auto report = PublishAll(version, replicas, deadline);
  if (!report.ok()) {
    telemetry::LogError("weight update failed",
                        {{"version", version}, {"error", report.status().message()}});
  }
  const absl::Status ended = options_.plane->End();
  // The first cause is told; a group that is broken now most often is so because of it.
  RETURN_IF_ERROR(report.status());
  RETURN_IF_ERROR(ended) << "the trainer's group";
  last_version_ = version;
  report->seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

absl::StatusOr<PublishReport> WeightPublisher::PublishAll(
    int64_t version, const std::vector<ReplicaEndpoint>& replicas, absl::Time deadline) {
  RETURN_IF_ERROR(UpdateMembers(replicas));
  PublishReport report;
  report.policy_version = version;
  report.size_bytes = options_.plane->model_bytes();
  std::vector<Member*> members;
  for (const ReplicaEndpoint& endpoint : replicas) {
    Member& member = members_[endpoint.id];
    member.result = report.replicas.size();
    members.push_back(&member);
    report.replicas.emplace_back().id = endpoint.id;
  }
  const auto ask_start = Clock::now();
  std::vector<Member*> sources = members;
  RETURN_IF_ERROR(AskMembers(version, deadline, report, members));
  std::erase_if(sources, [&](const Member* m) { return !report.replicas[m->result].committed; });
  report.times.Worked("begin", ask_start);

  absl::Status status = FeedByStream(version, deadline, sources, report, members);
  if (options_.policy == UpdatePolicy::kAll) {
    RETURN_IF_ERROR(status);
  }
  for (bool try_again = true; !members.empty() && try_again;) {
    status = RunAttempt(version, deadline, members, report, try_again);
  }
  if (options_.policy == UpdatePolicy::kAll) {
    RETURN_IF_ERROR(status);
  }
  const bool any = std::any_of(report.replicas.begin(), report.replicas.end(),
                               [](const auto& replica) { return replica.committed; });
  if (!any) {
    RETURN_IF_ERROR(status);
    for (const auto& replica : report.replicas) RETURN_IF_ERROR(replica.error);
  }
  return report;
}

absl::Status WeightPublisher::UpdateMembers(const std::vector<ReplicaEndpoint>& replicas) {
  if (replicas.empty())
    return absl::InvalidArgumentError("replicas: expected at least one, found none");
  std::set<std::string> ids;
  for (const ReplicaEndpoint& endpoint : replicas) {
    if (endpoint.id.empty() || endpoint.rank_addresses.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "replica '", endpoint.id, "': expected an id and the addresses of its ranks"));
    }
    if (!ids.insert(endpoint.id).second) {
      return absl::InvalidArgumentError(absl::StrCat("replica ", endpoint.id, " is listed twice"));
    }
    const auto it = members_.find(endpoint.id);
    const bool same = it != members_.end() && it->second.client->endpoint() == endpoint;
    if (same && !it->second.failed) continue;
    Member& member = members_[endpoint.id];
    member.failed = same;
    member.client.reset();  // and its channel, whose pauses between attempts have grown
    member.client = std::make_unique<ReplicaClient>(endpoint);
    member.table_id.clear();
    member.version = -1;
  }
  for (auto it = members_.begin(); it != members_.end();) {
    it = ids.count(it->first) > 0 ? std::next(it) : members_.erase(it);
  }
  return absl::OkStatus();
}

absl::Status WeightPublisher::AskMembers(int64_t version, absl::Time deadline,
                                         PublishReport& report, std::vector<Member*>& members) {
  // Between updates nobody is asked again: a rank that has restarted shows in its answer to
  // BeginUpdate.
  const auto must_ask = [&](const Member* member) {
    return member->table_id.empty() || version == last_version_ || member->version == version;
  };
  // A replica that was away is given a moment: its channel tries to connect only now and then.
  const absl::Time give_up = std::min(deadline, absl::Now() + kReconnectFor);
  std::unique_ptr<ManifestCalls> calls;
  while (true) {
    calls = std::make_unique<ManifestCalls>(Clients(members));
    calls->Start(
        &WeightServiceAsync::GetManifest, deadline,
        [&](int, int) {
          GetManifestRequest request;
          *request.mutable_owner() = owner_;
          return request;
        },
        nullptr, [&](int replica, int) { return must_ask(members[replica]); });
    calls->WaitUntil(absl::InfiniteFuture());  // each call has the deadline
    bool again = false;
    for (size_t i = 0; i < members.size(); ++i) {
      for (const auto& answer : calls->answers()[i])
        again |= members[i]->failed && absl::IsUnavailable(answer.status);
    }
    if (!again || absl::Now() + kReconnectPause >= give_up) break;
    absl::SleepFor(kReconnectPause);
  }

  std::vector<Member*> remaining;
  for (size_t i = 0; i < members.size(); ++i) {
    auto& result = report.replicas[members[i]->result];
    bool live = must_ask(members[i]) && !members[i]->client->repairs();
    absl::Status error;
    for (int rank = 0; rank < members[i]->client->num_ranks(); ++rank) {
      const auto& answer = calls->answers()[i][rank];
      if (!answer.status.ok() && error.ok())
        error = members[i]->client->Explain(rank, "begin", answer.status);
      const absl::Status in_range = rpc::CheckReportedVersion(
          "its manifest", answer.response.policy_version(), rpc::NoVersion::kAllowed);
      if (!in_range.ok() && error.ok())
        error = members[i]->client->Explain(rank, "begin", in_range);
      // The same number from another trainer is another version.
      live = live && answer.response.policy_version() == version &&
             answer.response.incarnation() == options_.incarnation;
    }
    members[i]->failed = !error.ok();
    if (!error.ok()) {
      result.error = error;
      members[i]->table_id.clear();
    } else if (live) {
      result.committed = true;
    } else {
      remaining.push_back(members[i]);
    }
  }
  if (options_.policy == UpdatePolicy::kAll) {
    for (const Member* member : members) RETURN_IF_ERROR(report.replicas[member->result].error);
  }
  members = std::move(remaining);
  return absl::OkStatus();
}

absl::Status WeightPublisher::FeedByStream(int64_t version, absl::Time deadline,
                                           const std::vector<Member*>& sources,
                                           PublishReport& report, std::vector<Member*>& members) {
  if (!options_.plane->chained() || sources.empty() || members.empty()) return absl::OkStatus();
  // Who has the version has it from this publisher, which knows what it sent.
  if (digests_version_ != version) return absl::OkStatus();
  const auto start = Clock::now();
  const absl::Time stream_deadline = absl::Now() + (deadline - absl::Now()) / 2;
  StreamFeed::Options options;
  options.owner = owner_;
  options.policy_version = version;
  options.deadline = stream_deadline;
  options.blame_grace = options_.blame_grace;
  StreamFeed feed(*options_.plane, options, Clients(sources), digests_);
  const std::vector<StreamFeed::Result> fed = feed.Run(Clients(members));
  report.times.Worked("wire", start);
  report.model_digest = weights::ModelDigest(digests_);

  absl::Status failed;
  std::vector<Member*> remaining;
  for (size_t i = 0; i < members.size(); ++i) {
    Member& member = *members[i];
    auto& result = report.replicas[member.result];
    member.table_id = fed[i].table_id;
    if (fed[i].committed) {
      DropGroup();  // it was not, as this process, in the one that is kept
      result.committed = true;
      result.fed_by = fed[i].source;
      result.pause_seconds = fed[i].pause_seconds;
      member.version = version;
      member.digests = fed[i].rank_digests;
      report.links.insert(report.links.end(), fed[i].links.begin(), fed[i].links.end());
    } else if (fed[i].own_error) {
      result.error = fed[i].error;
      member.table_id.clear();
      member.failed = true;
      if (failed.ok()) failed = fed[i].error;
    } else {
      remaining.push_back(members[i]);
    }
  }
  members = std::move(remaining);
  return failed;
}

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

// With the rendezvous's secret.
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
  if (group_ != nullptr) group_->Abort("the update group is made anew");
  group_.reset();
  stores_.clear();
  group_members_.clear();
}

absl::StatusOr<comm::ProcessGroup*> WeightPublisher::GetGroup(int size, absl::Time deadline,
                                                              const absl::Notification* cancel) {
  if (group_ != nullptr) return group_.get();
  comm::GroupOptions options;
  options.name = "update";
  options.rank = 0;
  options.size = size;
  options.rendezvous = {rendezvous_.host(), rendezvous_.port(), rendezvous_.prefix(),
                        rendezvous_.secret()};
  options.timeout = std::max(absl::Milliseconds(1), deadline - absl::Now());
  options.cancel = cancel;
  ASSIGN_OR_RETURN(group_, options_.make_group(options_.backend, options));
  return group_.get();
}

bool WeightPublisher::CanSendDelta(const std::vector<Member*>& members) const {
  return options_.plane->sends_deltas() && base_version_ >= 0 &&
         members.front()->client->num_ranks() == base_ranks_ &&
         std::all_of(members.begin(), members.end(),
                     [this](const Member* member) { return member->version == base_version_; });
}

absl::Status WeightPublisher::RunAttempt(int64_t version, absl::Time deadline,
                                         std::vector<Member*>& members, PublishReport& report,
                                         bool& try_again) {
  try_again = false;
  // Those with more ranks feed those with fewer.
  if (options_.plane->chained()) {
    std::stable_sort(members.begin(), members.end(), [](const Member* a, const Member* b) {
      return a->client->num_ranks() > b->client->num_ranks();
    });
  }
  std::vector<std::string> ids;
  for (const Member* member : members) ids.push_back(member->client->id());
  const bool all_know = std::all_of(members.begin(), members.end(),
                                    [](const Member* m) { return !m->table_id.empty(); });
  if (group_members_ != ids || !all_know || group_ == nullptr || !group_->status().ok())
    DropGroup();
  const bool reused = group_ != nullptr;
  // Of this attempt alone: what an earlier one was told is of no use from here on.
  rendezvous_.set_secret(security::DrawSecret());
  stores_.clear();
  if (store_server_ != nullptr) store_server_->SetSecret(rendezvous_.secret());
  if (!reused) {
    RETURN_IF_ERROR(ServeStoreAt(AdvertiseHost(members)));
    rendezvous_.set_backend(options_.backend);
    rendezvous_.set_prefix(absl::StrCat("update/", options_.incarnation, "/", num_groups_++));
    group_members_ = ids;
  }
  for (const std::string& prefix :
       UpdateAttempt::GroupPrefixes(*options_.plane, rendezvous_.prefix(), members.size())) {
    ASSIGN_OR_RETURN(auto store,
                     comm::StoreClient::Connect({store_server_->local_host(), rendezvous_.port(),
                                                 prefix, rendezvous_.secret()},
                                                deadline - absl::Now()));
    stores_.push_back(std::move(store));
  }

  // Under kAvailable a replica that stands still must leave the others time to go on without it.
  const absl::Time attempt_deadline =
      options_.policy == UpdatePolicy::kAvailable && members.size() > 1
          ? absl::Now() + (deadline - absl::Now()) / 2
          : deadline;
  UpdateAttempt::Options options;
  options.owner = owner_;
  options.policy_version = version;
  options.rendezvous = rendezvous_;
  options.delta = CanSendDelta(members);
  options.base_version = base_version_;
  if (options.delta) {
    for (const Member* member : members) options.base_digests.push_back(member->digests);
  }
  options.deadline = attempt_deadline;
  options.blame_grace = options_.blame_grace;
  UpdateAttempt attempt(*options_.plane, options, Clients(members));

  weights::PhaseTimes times = report.times;
  const auto begin_start = Clock::now();
  std::vector<std::string> known;
  for (const Member* member : members) known.push_back(member->table_id);
  absl::Status status = attempt.Begin(known);
  if (!status.ok() && attempt.told_tables()) {
    // Some may have them and others not.
    for (Member* member : members) member->table_id.clear();
  }
  times.Worked("begin", begin_start);
  absl::Status gather;
  if (status.ok()) {
    for (size_t i = 0; i < members.size(); ++i) members[i]->table_id = attempt.table_id(i);
    base_version_ = -1;  // until all of it has been sent
    status = attempt.Transfer(
        stores_,
        [&](int size, const absl::Notification* cancel) {
          return GetGroup(size, attempt_deadline, cancel);
        },
        times);
    if (status.ok()) {
      base_version_ = version;
      base_ranks_ = members.front()->client->num_ranks();
    }
    gather = options_.plane->Drain();
  }
  if (status.ok()) status = attempt.Verify(times);
  if (status.ok()) {
    status = attempt.Commit(times);
    report.times = std::move(times);
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
      if (!result.committed) {
        members[i]->table_id.clear();
        members[i]->failed = true;
      }
    }
    if (!status.ok()) {
      DropGroup();
      RETURN_IF_ERROR(status) << "other replicas have committed; publish again once it is back";
    }
    return status;
  }

  DropGroup();
  attempt.Abort(status);
  if (!gather.ok()) {  // so there is nothing that could be tried again
    RETURN_IF_ERROR(status) << "the trainer's group: " << gather.message();
  }
  std::vector<Member*> healthy;
  bool other_base = false;
  for (size_t i = 0; i < members.size(); ++i) {
    if (attempt.failures()[i].ok()) {
      healthy.push_back(members[i]);
      if (attempt.needs_manifest()) members[i]->table_id.clear();
    } else if (HasOtherBase(attempt.failures()[i])) {
      healthy.push_back(members[i]);
      members[i]->table_id.clear();
      members[i]->version = -1;  // so that it gets all of it
      other_base = true;
    } else {
      report.replicas[members[i]->result].error = attempt.failures()[i];
      members[i]->table_id.clear();
      members[i]->failed = true;
    }
  }
  const bool nobody_failed = healthy.size() == members.size();
  if (nobody_failed) {
    // A replica that has another base than it was thought to have, a rank that restarted, or a
    // connection that went while the group was idle: once more in a new one.
    try_again = (other_base || attempt.needs_manifest() || reused) && absl::Now() < deadline;
  } else if (options_.policy == UpdatePolicy::kAvailable) {
    try_again = !healthy.empty() && absl::Now() < deadline;
  }
  if (options_.policy == UpdatePolicy::kAvailable) members = healthy;
  if (try_again) {
    telemetry::LogWarning(
        "weight update begins anew",
        {{"version", version}, {"replicas", healthy.size()}, {"reason", status.message()}});
  }
  return status;
}

}  // namespace tandem::trainer
