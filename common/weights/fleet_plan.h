// FleetPlan: how a whole fleet of rollout replicas gets an update. The trainer feeds one replica,
// which feeds the next, and so on: every byte leaves the trainer once, whatever the number of
// replicas and of ranks in each. What several ranks of a replica hold alike comes to one of them,
// and they exchange it when all has come (split_wants.h).
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

// From one replica to the next of the chain.
struct ChainLink {
  int from_replica = 0;
  int to_replica = 0;
  // Null where both are split alike: rank i forwards to rank i the messages that it receives from
  // outside its replica, as they are and in their order. Else from holdings to holdings.
  std::shared_ptr<const ReshardPlan> plan;
};

struct FleetPlan {
  int trainer_ranks = 0;
  std::vector<int> replica_ranks;  // tensor-parallel size of each
  // The replicas in the order in which they are fed: larger ones first, so that the trainer feeds
  // as many ranks as there are, and alike ones together; otherwise by number.
  std::vector<int> chain;
  std::shared_ptr<const ReshardPlan> feed;  // from the trainer to chain[0]
  std::vector<ChainLink> links;             // links[i] from chain[i] to chain[i + 1]
  // By the size of a replica, what its ranks exchange among themselves when they have what came
  // from outside, senders and receivers being the same ranks. Without messages where no two of them
  // hold the same.
  std::map<int, std::shared_ptr<const ReshardPlan>> exchanges;

  int num_ranks() const;
  // The first of a replica's ranks.
  int first_rank(int replica) const;
  // The process groups that the messages need, as ranks of the fleet: those that feed (all senders
  // and the first replica), then one for each link. A replica's exchange is within the group that
  // feeds it. A rollout rank is in at most two.
  std::vector<std::vector<int>> Groups() const;
};

// `rollout`: the holdings of a replica by its tensor-parallel size; one for each in
// `replica_ranks`. Plans are made once for each pair of sizes that meet. Errors: those of
// MakeReshardPlan(); INVALID_ARGUMENT where there is no replica, or a size has no holdings.
absl::StatusOr<FleetPlan> MakeFleetPlan(const Holdings& trainer,
                                        const std::map<int, Holdings>& rollout,
                                        std::vector<int> replica_ranks,
                                        const ReshardOptions& options);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_FLEET_PLAN_H_
