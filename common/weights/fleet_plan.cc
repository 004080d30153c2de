#include "common/weights/fleet_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/split_wants.h"

namespace tandem::weights {
namespace {

using Shared = std::shared_ptr<const ReshardPlan>;

absl::StatusOr<Shared> MakeShared(const Holdings& from, const Holdings& to,
                                  const ReshardOptions& options) {
  ASSIGN_OR_RETURN(ReshardPlan plan, MakeReshardPlan(from, to, options));
  return std::make_shared<const ReshardPlan>(std::move(plan));
}

}  // namespace

int FleetPlan::num_ranks() const { return first_rank(static_cast<int>(replica_ranks.size())); }

int FleetPlan::first_rank(int replica) const {
  return std::accumulate(replica_ranks.begin(), replica_ranks.begin() + replica, trainer_ranks);
}

std::vector<std::vector<int>> FleetPlan::Groups() const {
  std::vector<int> first(replica_ranks.size());
  std::exclusive_scan(replica_ranks.begin(), replica_ranks.end(), first.begin(), trainer_ranks);
  const auto add_replica = [&](int replica, std::vector<int>& group) {
    for (int i = 0; i < replica_ranks[replica]; ++i) group.push_back(first[replica] + i);
  };
  std::vector<std::vector<int>> groups(1);
  for (int rank = 0; rank < trainer_ranks; ++rank) {
    if (feed->sent_bytes[rank] > 0) groups[0].push_back(rank);
  }
  add_replica(chain[0], groups[0]);
  for (const ChainLink& link : links) {
    std::vector<int>& group = groups.emplace_back();
    add_replica(link.from_replica, group);
    add_replica(link.to_replica, group);
  }
  return groups;
}

absl::StatusOr<FleetPlan> MakeFleetPlan(const Holdings& trainer,
                                        const std::map<int, Holdings>& rollout,
                                        std::vector<int> replica_ranks,
                                        const ReshardOptions& options) {
  if (replica_ranks.empty()) return absl::InvalidArgumentError("no replica to plan for");
  for (const int ranks : replica_ranks) {
    if (rollout.count(ranks) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a replica has ", ranks, " ranks, but no layout for this number is given"));
    }
  }
  FleetPlan plan;
  plan.trainer_ranks = trainer.num_ranks();
  plan.replica_ranks = std::move(replica_ranks);
  plan.chain.resize(plan.replica_ranks.size());
  std::iota(plan.chain.begin(), plan.chain.end(), 0);
  // Stable: every rank has to compute the same chain.
  std::stable_sort(plan.chain.begin(), plan.chain.end(),
                   [&](int a, int b) { return plan.replica_ranks[a] > plan.replica_ranks[b]; });
  std::map<int, Holdings> first;  // what comes to a replica from outside, by its size
  for (const int ranks : plan.replica_ranks) {
    if (first.count(ranks) > 0) continue;
    SplitWants wants = SplitWantsOf(rollout.at(ranks));
    ASSIGN_OR_RETURN(plan.exchanges[ranks], MakeShared(wants.first, wants.rest, options));
    first[ranks] = std::move(wants.first);
  }
  ASSIGN_OR_RETURN(plan.feed,
                   MakeShared(trainer, first.at(plan.replica_ranks[plan.chain[0]]), options));
  for (size_t i = 0; i + 1 < plan.chain.size(); ++i) {
    ChainLink& link = plan.links.emplace_back();
    link.from_replica = plan.chain[i];
    link.to_replica = plan.chain[i + 1];
    const int from = plan.replica_ranks[link.from_replica];
    const int to = plan.replica_ranks[link.to_replica];
    if (from == to) continue;  // the order leaves each pair of sizes to meet once
    ASSIGN_OR_RETURN(link.plan, MakeShared(rollout.at(from), first.at(to), options));
  }
  return plan;
}

}  // namespace tandem::weights
