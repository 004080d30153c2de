// FleetTables: each rank's update tables for a fleet whose replicas differ in their number of
// ranks. The trainer feeds the largest replica; each feeds the next, forwarding buckets unchanged
// if both are split alike, else re-cutting them (relay_plan.h). So a trainer rank sends its share
// of the model once, whatever the replicas.
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
#include "services/trainer/publish/reshard_feeds.h"
#include "services/trainer/publish/send_transport.h"

namespace tandem::trainer {

// By rank of a replica, the manifest of the parts of `whole`'s tensors that the rank holds.
// UNIMPLEMENTED if a rank holds nothing of a tensor.
absl::StatusOr<std::vector<weights::Manifest>> PartManifests(const weights::Manifest& whole,
                                                             const weights::ModelLayout& rollout);

// Not thread-safe. `feeds` outlives it.
class FleetTables {
 public:
  explicit FleetTables(ReshardFeeds* feeds) : feeds_(feeds) {}

  // Tables for replicas with these numbers of ranks, in feeding order. INVALID_ARGUMENT if there is
  // none, or a larger one follows a smaller one; errors of the plans. `keeps_frozen`: the buckets
  // bring trainable tensors only.
  absl::StatusOr<std::vector<ReplicaTables>> For(const std::vector<int>& replica_ranks,
                                                 bool keeps_frozen = false);

 private:
  // The ranks of one replica size, and the plan that feeds them.
  struct Hop {
    const weights::ModelLayout* rollout = nullptr;
    const weights::ReshardPlan* plan = nullptr;  // the trainer's, or `relay`'s
    weights::RelayPlan relay;                    // from the hop before
    std::vector<std::vector<int64_t>> tensor_bytes;
    std::shared_ptr<const std::vector<RankTable>> ranks;
    // Buckets that the ranks of the previous hop forward; null for the first.
    std::shared_ptr<const std::vector<weights::RelayedBuckets>> relayed;
  };

  // The hop for the sizes along a path, such as "4>2>1" or "trainable 4>2>1".
  absl::StatusOr<const Hop*> HopOf(const std::string& path, const Hop* before, const FeedKey& key);

  ReshardFeeds* const feeds_;
  std::map<std::string, std::unique_ptr<Hop>> hops_;  // by path
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_FLEET_TABLES_H_
