// FleetTables: what every rank of a fleet is told of an update, where the replicas have different
// numbers of ranks. The trainer feeds the largest; each feeds the next, as it is where both are
// split alike, else cut anew (relay_plan.h). So a trainer rank sends its share of the model once,
// whatever replicas there are.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_FLEET_TABLES_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_FLEET_TABLES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/model_layout.h"
#include "common/weights/relay_plan.h"
#include "common/weights/relay_table.h"
#include "services/trainer/publish/data_plane.h"
#include "services/trainer/publish/reshard_feeds.h"

namespace tandem::trainer {

// By rank of a replica, the manifest of what it holds of `whole`'s tensors. UNIMPLEMENTED where a
// rank has nothing of one.
absl::StatusOr<std::vector<weights::Manifest>> PartManifests(const weights::Manifest& whole,
                                                             const weights::ModelLayout& rollout);

// Not thread-safe. `feeds` outlives it.
class FleetTables {
 public:
  explicit FleetTables(ReshardFeeds* feeds) : feeds_(feeds) {}

  // Of replicas of so many ranks each, in the order in which they are fed. INVALID_ARGUMENT where
  // there is none, or a larger one comes after a smaller one; errors of the plans.
  absl::StatusOr<std::vector<ReplicaTables>> For(const std::vector<int>& replica_ranks);

 private:
  // The ranks of one size, and how what they hold got there.
  struct Hop {
    const weights::ModelLayout* rollout = nullptr;
    const weights::ReshardPlan* plan = nullptr;  // that brings it: the trainer's, or `relay`'s
    weights::RelayPlan relay;                    // from the hop before
    std::vector<std::vector<int64_t>> tensor_bytes;
    std::shared_ptr<const std::vector<RankTable>> ranks;
    // What the ranks of the hop before pass on; null for the first.
    std::shared_ptr<const std::vector<weights::RelayedBuckets>> relayed;
  };

  // Of the sizes along a path, "4>2>1".
  absl::StatusOr<const Hop*> HopOf(const std::string& path, const Hop* before, int num_ranks);

  ReshardFeeds* const feeds_;
  std::map<std::string, std::unique_ptr<Hop>> hops_;  // by path
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_FLEET_TABLES_H_
