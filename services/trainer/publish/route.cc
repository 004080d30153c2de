#include "services/trainer/publish/route.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::trainer {

using rollout::v1::BeginUpdateRequest;

common::v1::GroupRendezvous GroupOf(common::v1::GroupRendezvous rendezvous,
                                    const std::string& prefix, int rank, int size) {
  rendezvous.set_prefix(prefix);
  rendezvous.set_rank(rank);
  rendezvous.set_size(size);
  return rendezvous;
}

std::vector<int> RanksOf(const Route::Replicas& replicas) {
  std::vector<int> ranks;
  for (const ReplicaClient* replica : replicas) ranks.push_back(replica->num_ranks());
  return ranks;
}

std::vector<int> StarRoute::FirstRanks(const std::vector<int>& fleet) {
  std::vector<int> first;
  int next = 1;  // after the leader
  for (const int ranks : fleet) {
    first.push_back(next);
    next += ranks;
  }
  return first;
}

int StarRoute::LeaderGroupSize(const Replicas& replicas) const {
  int size = 1;
  for (const ReplicaClient* replica : replicas) size += replica->num_ranks();
  return size;
}

void StarRoute::Fill(const Replicas& replicas, Receiver receiver, bool /*delta*/,
                     const common::v1::GroupRendezvous& rendezvous,
                     BeginUpdateRequest& request) const {
  const std::vector<int> fleet = RanksOf(replicas);
  const std::vector<int> first = FirstRanks(fleet);
  const auto& [replica, rank] = receiver;
  *request.mutable_rendezvous() =
      GroupOf(rendezvous, rendezvous.prefix(), first[replica] + rank, LeaderGroupSize(replicas));
  request.set_transport(common::v1::TRANSPORT_BROADCAST);
  // If every replica has one rank, all hold everything.
  if (std::all_of(fleet.begin(), fleet.end(), [](int ranks) { return ranks == 1; })) return;
  const auto like_it = [&](int other) { return fleet[other] == fleet[replica]; };
  for (int before = replica - 1; before >= 0; --before) {
    if (!like_it(before)) continue;
    request.set_fed_by(first[before] + rank);
    break;
  }
  for (int next = replica + 1; next < static_cast<int>(fleet.size()); ++next) {
    if (!like_it(next)) continue;
    request.set_forward_to(first[next] + rank);
    break;
  }
}

std::string StarRoute::SenderName(const Replicas& replicas, Receiver, int from) const {
  const std::vector<int> first = FirstRanks(RanksOf(replicas));
  for (int replica = static_cast<int>(first.size()) - 1; replica >= 0; --replica) {
    if (from < first[replica]) continue;
    return absl::StrCat(replicas[replica]->id(), "/", from - first[replica]);
  }
  return absl::StrCat("trainer/", from);
}

std::optional<int> StarRoute::BrokenLink(const std::vector<TransferReport>&,
                                         int num_replicas) const {
  // When one link of a shared group breaks, all ranks report the same.
  if (num_replicas == 1) return 0;
  return std::nullopt;
}

bool ChainRoute::FeedsBefore(const Candidate& a, const Candidate& b) const {
  if (a.num_ranks != b.num_ranks) return a.num_ranks > b.num_ranks;
  return !a.feeds_nobody && b.feeds_nobody;
}

std::vector<std::string> ChainRoute::GroupPrefixes(const std::string& prefix,
                                                   int num_replicas) const {
  std::vector<std::string> prefixes = {prefix};
  for (int link = 1; link < num_replicas; ++link) {
    prefixes.push_back(absl::StrCat(prefix, "/link/", link));
  }
  return prefixes;
}

int ChainRoute::LeaderGroupSize(const Replicas& replicas) const {
  return num_senders_ + replicas.front()->num_ranks();
}

// The group of a link has the ranks of the feeding replica, then those of the fed one. If both have
// equally many, rank i feeds rank i: a bucket's source is a rank in the plan, as in the first
// group; within the link it is the feeding rank. Otherwise the plan is the link's own.
void ChainRoute::Fill(const Replicas& replicas, Receiver receiver, bool delta,
                      const common::v1::GroupRendezvous& rendezvous,
                      BeginUpdateRequest& request) const {
  request.set_transport(delta ? common::v1::TRANSPORT_DELTA : common::v1::TRANSPORT_RESHARD);
  const auto& [replica, rank] = receiver;
  const auto num_replicas = static_cast<int>(replicas.size());
  const std::vector<std::string> prefixes = GroupPrefixes(rendezvous.prefix(), num_replicas);
  const int ranks = replicas[replica]->num_ranks();
  const int feeders = replica == 0 ? num_senders_ : replicas[replica - 1]->num_ranks();
  *request.mutable_rendezvous() =
      GroupOf(rendezvous, prefixes[replica], feeders + rank, feeders + ranks);
  if (replica > 0 && feeders == ranks) request.set_fed_by(rank);
  if (replica + 1 == num_replicas) return;
  const int fed = replicas[replica + 1]->num_ranks();
  *request.mutable_forward() = GroupOf(rendezvous, prefixes[replica + 1], rank, ranks + fed);
  if (fed == ranks) {
    request.set_forward_to(ranks + rank);
  } else {
    request.set_relays(true);
  }
}

std::string ChainRoute::SenderName(const Replicas& replicas, Receiver receiver, int from) const {
  if (receiver.replica == 0) return absl::StrCat("trainer/", from);
  return absl::StrCat(replicas[receiver.replica - 1]->id(), "/", from);
}

std::optional<int> ChainRoute::BrokenLink(const std::vector<TransferReport>& reports,
                                          int num_replicas) const {
  return BrokenLinkOfChain(reports, num_replicas);
}

void StreamRoute::Fill(const Replicas&, Receiver receiver, bool /*delta*/,
                       const common::v1::GroupRendezvous&, BeginUpdateRequest& request) const {
  request.set_transport(common::v1::TRANSPORT_STREAM);
  request.set_stream_address(source_.rank_addresses[receiver.rank]);
}

std::string StreamRoute::SenderName(const Replicas&, Receiver receiver, int /*from*/) const {
  return absl::StrCat(source_.id, "/", receiver.rank);
}

}  // namespace tandem::trainer
