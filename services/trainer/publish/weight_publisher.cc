#include "services/trainer/publish/weight_publisher.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/policy_version.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/weights/tensor_digests.h"
#include "services/trainer/publish/rank_calls.h"
#include "services/trainer/publish/stream_feed.h"

namespace tandem::trainer {
namespace {

using rollout::v1::GetManifestRequest;
using rollout::v1::GetManifestResponse;
using ManifestCalls = RankCalls<GetManifestRequest, GetManifestResponse>;
using Clock = weights::PhaseTimes::Clock;

// Longer than a channel's first pauses between attempts to connect.
constexpr absl::Duration kReconnectFor = absl::Seconds(3);
constexpr absl::Duration kReconnectPause = absl::Milliseconds(100);

// The size of a request with a manifest of a few hundred tensors, and longer than any packet.
constexpr size_t kProbeBytes = 32 << 10;

}  // namespace

std::vector<ReplicaClient*> WeightPublisher::Clients(const std::vector<Member*>& members) {
  std::vector<ReplicaClient*> clients;
  for (const Member* member : members) clients.push_back(member->client.get());
  return clients;
}

absl::StatusOr<std::unique_ptr<WeightPublisher>> WeightPublisher::Create(Options options) {
  if (options.transport == nullptr) {
    return absl::InvalidArgumentError("a publisher needs a transport");
  }
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
  options_.transport->Begin(deadline);
  auto report = PublishAll(version, replicas, deadline);
  if (!report.ok()) {
    telemetry::LogError("weight update failed",
                        {{"version", version}, {"error", report.status().message()}});
  }
  const absl::Status ended = options_.transport->End();
  // Returns the first cause; if the group is broken now, that is mostly its consequence.
  RETURN_IF_ERROR(report.status());
  RETURN_IF_ERROR(ended) << "the trainer's group";
  last_version_ = version;
  report->seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

absl::StatusOr<PublishReport> WeightPublisher::PublishAll(
    int64_t version, const std::vector<ReplicaEndpoint>& replicas, absl::Time deadline) {
  RETURN_IF_ERROR(UpdateMembers(replicas));
  if (version != last_version_) doubts_.BeginUpdate();
  PublishReport report;
  report.policy_version = version;
  report.size_bytes = options_.transport->model_bytes();
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
  Remaining remaining{.members = std::move(members), .apart = {}, .stranded = {}};
  SetApart(remaining);
  if (!remaining.members.empty()) status = RunAttempts(version, deadline, remaining, report);
  if (options_.policy == UpdatePolicy::kAll) {
    RETURN_IF_ERROR(status);
  }
  if (!remaining.apart.empty() || !remaining.stranded.empty())
    status = FeedApart(version, deadline, remaining, report);
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
    if (!same) doubts_.Forget(endpoint.id);
    member.failed = same;
    member.client.reset();  // and its channel, whose pauses between attempts have grown
    member.client = std::make_unique<ReplicaClient>(endpoint);
    member.table_id.clear();
    member.version = -1;
  }
  for (auto it = members_.begin(); it != members_.end();) {
    if (ids.contains(it->first)) {
      ++it;
      continue;
    }
    doubts_.Forget(it->first);
    it = members_.erase(it);
  }
  return absl::OkStatus();
}

absl::Status WeightPublisher::AskMembers(int64_t version, absl::Time deadline,
                                         PublishReport& report, std::vector<Member*>& members) {
  // Between updates members are not queried again: a restarted rank shows in its BeginUpdate
  // response.
  const auto must_ask = [&](const Member* member) {
    return member->table_id.empty() || version == last_version_ || member->version == version;
  };
  // Gives a replica that was away a moment: its channel reconnects only now and then.
  const absl::Time give_up = std::min(deadline, absl::Now() + kReconnectFor);
  // A replica whose packets are lost must leave the others time to continue without it.
  const absl::Time answer_by =
      options_.policy == UpdatePolicy::kAll
          ? deadline
          : absl::Now() + std::min(options_.ask_timeout, (deadline - absl::Now()) / 4);
  std::unique_ptr<ManifestCalls> calls;
  while (true) {
    calls = std::make_unique<ManifestCalls>(Clients(members));
    calls->Start(
        &WeightServiceAsync::GetManifest, answer_by,
        [&](int, int) {
          GetManifestRequest request;
          *request.mutable_owner() = owner_;
          request.set_probe(std::string(kProbeBytes, '\0'));
          return request;
        },
        nullptr, [&](int replica, int) { return must_ask(members[replica]); });
    calls->WaitUntil(absl::InfiniteFuture());  // each call has its deadline
    bool again = false;
    for (size_t i = 0; i < members.size(); ++i) {
      for (const auto& answer : calls->answers()[i])
        again |= members[i]->failed && absl::IsUnavailable(answer.status);
    }
    if (!again || absl::Now() + kReconnectPause >= std::min(give_up, answer_by)) break;
    absl::SleepFor(kReconnectPause);
  }

  std::vector<Member*> remaining;
  for (size_t i = 0; i < members.size(); ++i) {
    auto& result = report.replicas[members[i]->result];
    bool live = must_ask(members[i]) && !members[i]->client->repairs();
    absl::Status error;
    if (must_ask(members[i])) members[i]->places.clear();
    for (int rank = 0; rank < members[i]->client->num_ranks(); ++rank) {
      const auto& answer = calls->answers()[i][rank];
      if (must_ask(members[i])) members[i]->places.push_back(answer.response.place());
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
  if (!options_.transport->replicas_stream() || sources.empty() || members.empty())
    return absl::OkStatus();
  // Replicas with the version got it from this publisher, which knows the digests it sent.
  if (digests_version_ != version) return absl::OkStatus();
  const auto start = Clock::now();
  const absl::Time stream_deadline = absl::Now() + (deadline - absl::Now()) / 2;
  StreamFeed::Options options;
  options.owner = owner_;
  options.policy_version = version;
  options.deadline = stream_deadline;
  options.blame_grace = options_.blame_grace;
  StreamFeed feed(*options_.transport, options, Clients(sources), digests_);
  std::vector<StreamFeed::Reader> readers;
  for (Member* member : members) {
    readers.push_back(
        {member->client.get(), CanKeepFrozen({member}), member->version, member->digests});
  }
  const std::vector<StreamFeed::Result> fed = feed.Run(readers);
  report.times.Worked("wire", start);
  report.model_digest = weights::ModelDigest(digests_);

  absl::Status failed;
  std::vector<Member*> remaining;
  for (size_t i = 0; i < members.size(); ++i) {
    Member& member = *members[i];
    auto& result = report.replicas[member.result];
    member.table_id = fed[i].table_id;
    if (fed[i].committed) {
      // This process was not part of the group we kept.
      if (absl::c_linear_search(group_members_, member.client->id())) DropGroup();
      result.committed = true;
      result.error = absl::OkStatus();
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

}  // namespace tandem::trainer
