#include "common/rank_setup/mesh_shape.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::setup {
namespace {

using comm::MeshShape;
using config::v1::TrainerConfig;

std::string Describe(const TrainerConfig& trainer) {
  return absl::StrCat("[", absl::StrJoin(trainer.mesh_shape(), ", "), "] of [",
                      absl::StrJoin(trainer.mesh_dim_names(), ", "), "]");
}

absl::StatusOr<MeshShape> ShapeFromKeys(const TrainerConfig& trainer) {
  std::vector<std::string> names(trainer.mesh_dim_names().begin(), trainer.mesh_dim_names().end());
  if (names.empty() && trainer.mesh_shape_size() == 1) names = {"dp_shard"};
  if (names.empty() && trainer.mesh_shape_size() == 2) names = {"dp_replicate", "dp_shard"};
  if (static_cast<int>(names.size()) != trainer.mesh_shape_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "trainer.mesh_dim_names: expected a name for each of the ", trainer.mesh_shape_size(),
        " sizes of trainer.mesh_shape, found ", Describe(trainer)));
  }
  const std::vector<std::string> known = {"dp_replicate", "dp_shard", "ep", "tp"};
  MeshShape shape;
  int* const sizes[] = {&shape.dp_replicate, &shape.dp_shard, &shape.ep, &shape.tp};
  size_t next = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    while (next < known.size() && known[next] != names[i]) ++next;
    if (next == known.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("trainer.mesh_dim_names: expected some of ", absl::StrJoin(known, ", "),
                       " in this order, each once; found ", Describe(trainer)));
    }
    *sizes[next++] = static_cast<int>(trainer.mesh_shape(static_cast<int>(i)));
  }
  return shape;
}

absl::StatusOr<MeshShape> ShapeFromStrategy(const TrainerConfig& trainer, int local_ranks) {
  const auto ranks = static_cast<int>(trainer.ranks());
  MeshShape shape;
  switch (trainer.sharding_strategy()) {
    case config::v1::SHARDING_STRATEGY_NO_SHARD:
      shape.dp_replicate = ranks;
      return shape;
    case config::v1::SHARDING_STRATEGY_HYBRID_SHARD:
      if (local_ranks < 1 || ranks % local_ranks != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("trainer.sharding_strategy: hybrid_shard shards within a host, and the ",
                         ranks, " ranks are not a multiple of the ", local_ranks,
                         " on this host (LOCAL_WORLD_SIZE); set trainer.mesh_shape: [replicas, "
                         "ranks of a replica]"));
      }
      shape.dp_shard = local_ranks;
      shape.dp_replicate = ranks / local_ranks;
      return shape;
    default:
      shape.dp_shard = ranks;
      return shape;
  }
}

}  // namespace

absl::StatusOr<MeshShape> MeshShapeOf(const TrainerConfig& trainer, int local_ranks) {
  const bool stated = trainer.mesh_shape_size() > 0 || trainer.mesh_dim_names_size() > 0;
  absl::StatusOr<MeshShape> shape =
      stated ? ShapeFromKeys(trainer) : ShapeFromStrategy(trainer, local_ranks);
  if (!shape.ok()) return shape;
  if (shape->size() != trainer.ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer.mesh_shape: expected sizes whose product is trainer.ranks (",
                     trainer.ranks(), "), found ", Describe(trainer)));
  }
  if (trainer.sharding_strategy() == config::v1::SHARDING_STRATEGY_NO_SHARD &&
      shape->num_shards() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer.sharding_strategy: no_shard replicates, and trainer.mesh_shape "
                     "shards; found ",
                     Describe(trainer)));
  }
  shape->sequence = static_cast<int>(trainer.ulysses_sequence_parallel_size());
  if (shape->sequence < 1 || shape->dp_shard % shape->sequence != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer.ulysses_sequence_parallel_size: expected a divisor of the ",
                     shape->dp_shard, " ranks of dp_shard, found ", shape->sequence));
  }
  shape->ranks_per_host = local_ranks;
  return shape;
}

}  // namespace tandem::setup
