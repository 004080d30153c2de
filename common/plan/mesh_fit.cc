#include "common/plan/mesh_fit.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::plan {

std::string DescribeMesh(const comm::MeshShape& mesh) {
  std::vector<std::string> parts;
  if (mesh.dp_replicate > 1) parts.push_back(absl::StrCat("dp_replicate ", mesh.dp_replicate));
  if (mesh.dp_shard > 1) parts.push_back(absl::StrCat("dp_shard ", mesh.dp_shard));
  if (mesh.tp > 1) parts.push_back(absl::StrCat("tp ", mesh.tp));
  std::string text = parts.empty() ? "1 rank" : absl::StrJoin(parts, " x ");
  if (mesh.sequence > 1) absl::StrAppend(&text, ", sequences over ", mesh.sequence);
  return text;
}

int NumDataRanks(const comm::MeshShape& mesh) {
  return mesh.dp_replicate * mesh.dp_shard / mesh.sequence;
}

void SetMesh(const comm::MeshShape& mesh, config::v1::TrainerConfig& trainer) {
  trainer.clear_mesh_shape();
  trainer.clear_mesh_dim_names();
  const auto add = [&trainer](const char* name, int size) {
    trainer.add_mesh_dim_names(name);
    trainer.add_mesh_shape(size);
  };
  if (mesh.dp_replicate > 1) add("dp_replicate", mesh.dp_replicate);
  if (mesh.dp_shard > 1 || mesh.dp_replicate * mesh.tp == 1) add("dp_shard", mesh.dp_shard);
  if (mesh.tp > 1) add("tp", mesh.tp);
  trainer.set_ulysses_sequence_parallel_size(mesh.sequence);
  if (mesh.dp_replicate == 1) {
    trainer.set_sharding_strategy(config::v1::SHARDING_STRATEGY_FULL_SHARD);
  } else {
    trainer.set_sharding_strategy(mesh.dp_shard > 1 ? config::v1::SHARDING_STRATEGY_HYBRID_SHARD
                                                    : config::v1::SHARDING_STRATEGY_NO_SHARD);
  }
}

std::vector<MeshProblem> FindMeshProblems(const comm::MeshShape& mesh,
                                          const model::ModelSpec& spec) {
  std::vector<MeshProblem> problems;
  const auto check = [&problems](const char* key, const char* dimension, int64_t size,
                                 int64_t whole, const char* what) {
    if (whole % size == 0) return;
    problems.push_back({key, absl::StrCat(dimension, " of ", size, " does not divide the model's ",
                                          whole, " ", what)});
  };
  constexpr char kShape[] = "trainer.mesh_shape";
  check(kShape, "a tp dimension", mesh.tp, spec.num_heads, "attention heads");
  check(kShape, "a tp dimension", mesh.tp, spec.num_kv_heads, "key-value heads");
  if (mesh.sequence > 1 && problems.empty()) {
    // CheckSequenceParallel() of common/model: a few key-value heads may be on several ranks.
    constexpr char kSequence[] = "trainer.ulysses_sequence_parallel_size";
    check(kSequence, "a size", mesh.sequence, spec.num_heads / mesh.tp,
          "attention heads of a rank");
    const int64_t kv_heads = spec.num_kv_heads / mesh.tp;
    if (mesh.sequence % kv_heads != 0) {
      check(kSequence, "a size", mesh.sequence, kv_heads, "key-value heads of a rank");
    }
  }
  return problems;
}

}  // namespace tandem::plan
