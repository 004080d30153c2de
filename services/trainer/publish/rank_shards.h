// RankShards: the shards that one rank sends in a weight update, and the rank's place among the
// ranks that share a copy of the model.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_RANK_SHARDS_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_RANK_SHARDS_H_

#include <c10/core/ScalarType.h>

#include <memory>
#include <vector>

#include "common/weights/device_ops.h"
#include "services/trainer/fsdp/shard_layout.h"
#include "services/trainer/fsdp/unit_shard.h"

namespace tandem::trainer {

struct RankShards {
  // In the parameter table's order. A unit's shard is the slice [rank * padded_numel / ranks,
  // (rank + 1) * padded_numel / ranks) of its flat buffer; with tensor or expert parallelism
  // or frozen parameters, `layout` says which parts of the tensors each rank holds. Gradients are not read,
  // and `computed` may be undefined. A unit of parameters that stay in float32 is given in elements of the
  // wire type, by InWireElements().
  std::vector<UnitShard> units;
  int ranks = 1;
  int rank = 0;
  std::shared_ptr<const ShardLayout> layout;  // null: the units are the manifest's tensors in order
  // Operations of the device on which the groups of an update move tensors; buckets are its memory.
  weights::DeviceOps* ops = &weights::CpuOps();
};

// The shard of a unit in float32, seen as elements of a wire type, several for each of its own: sent as
// they are.
UnitShard InWireElements(UnitShard shard, at::ScalarType wire_type);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_RANK_SHARDS_H_
