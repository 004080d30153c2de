// FleetPlan: how an update reaches a fleet of rollout replicas. The trainer feeds one replica,
// which feeds the next, and so on: every byte leaves the trainer once, for any number of replicas
// and ranks. Data that several ranks of a replica share is sent to one of them; the ranks exchange
// it once everything has arrived (split_wants.h).
//
// Ranks are numbered over the fleet: the trainer's first, then those of replica 0, 1, ...
#ifndef TANDEM_COMMON_WEIGHTS_FLEET_PLAN_H_
#define TANDEM_COMMON_WEIGHTS_FLEET_PLAN_H_

#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/holdings.h"
#include "common/weights/reshard_plan.h"

namespace tandem::weights {

// A hop from one replica to the next in the chain.
struct ChainLink {
  int from_replica = 0;
  int to_replica = 0;
  // Null if both have the same split: rank i then forwards every message from outside its replica
  // to rank i, unchanged and in order. Otherwise reshards between their holdings.
  std::shared_ptr<const ReshardPlan> plan;
};

struct FleetPlan {
  int trainer_ranks = 0;
  std::vector<int> replica_ranks;  // tensor-parallel size of each
  // Replicas in feeding order: larger ones first, so that the trainer feeds as many ranks as
  // possible, and equal sizes together; otherwise by number.
  std::vector<int> chain;
  std::shared_ptr<const ReshardPlan> feed;  // from the trainer to chain[0]
  std::vector<ChainLink> links;             // links[i] from chain[i] to chain[i + 1]
  // By replica size: what its ranks exchange among themselves once everything from outside has
  // arrived. Senders and receivers are the same ranks. Has no messages if no two ranks share data.
  std::map<int, std::shared_ptr<const ReshardPlan>> exchanges;

  int num_ranks() const;
  // The first rank of a replica.
  int first_rank(int replica) const;
  // The process groups that the messages need, as fleet ranks: first the feed (all senders and the
  // first replica), then one per link. A replica's exchange uses the group that feeds it. A rollout
  // rank is in at most two groups.
  std::vector<std::vector<int>> Groups() const;
};

// `rollout`: a replica's holdings by tensor-parallel size, for every size in `replica_ranks`.
// Computes one plan per adjacent pair of sizes. Errors: those of MakeReshardPlan();
// INVALID_ARGUMENT if there is no replica, or a size has no holdings.
absl::StatusOr<FleetPlan> MakeFleetPlan(const Holdings& trainer,
                                        const std::map<int, Holdings>& rollout,
                                        std::vector<int> replica_ranks,
                                        const ReshardOptions& options);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_FLEET_PLAN_H_
