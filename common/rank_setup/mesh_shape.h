// Derives the shape of the trainer's mesh from the configuration.
#ifndef TANDEM_COMMON_RANK_SETUP_MESH_SHAPE_H_
#define TANDEM_COMMON_RANK_SETUP_MESH_SHAPE_H_

#include "absl/status/statusor.h"
#include "common/comm/mesh_shape.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::setup {

// Uses trainer.mesh_shape with trainer.mesh_dim_names (dp_replicate, dp_shard, ep, tp) if set; else
// applies trainer.sharding_strategy to trainer.ranks: full_shard and shard_grad_op shard over all
// ranks, no_shard replicates, and hybrid_shard shards over the `local_ranks` of a host and
// replicates over hosts. `local_ranks` is MeshShape::ranks_per_host. INVALID_ARGUMENT names the key
// that does not fit and a value that would.
absl::StatusOr<comm::MeshShape> MeshShapeOf(const config::v1::TrainerConfig& trainer,
                                            int local_ranks);

}  // namespace tandem::setup

#endif  // TANDEM_COMMON_RANK_SETUP_MESH_SHAPE_H_
