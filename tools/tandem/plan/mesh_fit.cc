#include "tools/tandem/plan/mesh_fit.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/parallel_fit.h"

namespace tandem::plan {

std::string DescribeMesh(const comm::MeshShape& mesh) {
  std::vector<std::string> parts;
  if (mesh.dp_replicate > 1) parts.push_back(absl::StrCat("dp_replicate ", mesh.dp_replicate));
  if (mesh.dp_shard > 1) parts.push_back(absl::StrCat("dp_shard ", mesh.dp_shard));
  if (mesh.ep > 1) parts.push_back(absl::StrCat("ep ", mesh.ep));
  if (mesh.tp > 1) parts.push_back(absl::StrCat("tp ", mesh.tp));
  std::string text = parts.empty() ? "1 rank" : absl::StrJoin(parts, " x ");
  if (mesh.sequence > 1) absl::StrAppend(&text, ", sequences split over ", mesh.sequence);
  return text;
}

void SetMesh(const comm::MeshShape& mesh, config::v1::TrainerConfig& trainer) {
  trainer.clear_mesh_shape();
  trainer.clear_mesh_dim_names();
  const auto add = [&trainer](const char* name, int size) {
    trainer.add_mesh_dim_names(name);
    trainer.add_mesh_shape(size);
  };
  if (mesh.dp_replicate > 1) add("dp_replicate", mesh.dp_replicate);
  if (mesh.dp_shard > 1 || mesh.dp_replicate * mesh.ep * mesh.tp == 1) {
    add("dp_shard", mesh.dp_shard);
  }
  if (mesh.ep > 1) add("ep", mesh.ep);
  if (mesh.tp > 1) add("tp", mesh.tp);
  trainer.set_ulysses_sequence_parallel_size(mesh.sequence);
  if (mesh.dp_replicate == 1) {
    trainer.set_sharding_strategy(config::v1::SHARDING_STRATEGY_FULL_SHARD);
  } else {
    trainer.set_sharding_strategy(mesh.num_shards() > 1 ? config::v1::SHARDING_STRATEGY_HYBRID_SHARD
                                                        : config::v1::SHARDING_STRATEGY_NO_SHARD);
  }
}

std::vector<MeshProblem> FindMeshProblems(const comm::MeshShape& mesh,
                                          const model::ModelSpec& spec) {
  std::vector<MeshProblem> problems;
  const auto add = [&problems](const char* key, const absl::Status& status) {
    if (!status.ok()) problems.push_back({key, std::string(status.message())});
  };
  add("trainer.mesh_shape", model::CheckTensorParallel(spec, mesh.tp));
  add("trainer.mesh_shape", model::CheckExpertParallel(spec, {}, mesh.ep));
  // The second check assumes a tensor-parallel split that passed the first.
  if (problems.empty()) {
    add("trainer.ulysses_sequence_parallel_size",
        model::CheckSequenceParallel(spec, mesh.tp, mesh.sequence));
  }
  return problems;
}

}  // namespace tandem::plan
