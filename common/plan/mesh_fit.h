// A mesh in words, in a configuration, and against the model that is to be spread over it.
#ifndef TANDEM_COMMON_PLAN_MESH_FIT_H_
#define TANDEM_COMMON_PLAN_MESH_FIT_H_

#include <string>
#include <vector>

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

// "dp_replicate 4 x dp_shard 8"; "1 rank".
std::string DescribeMesh(const comm::MeshShape& mesh);

// Writes shape, names, the sequences' share and the strategy that goes with them: hybrid_shard
// where copies are sharded, no_shard where nothing is, full_shard otherwise.
void SetMesh(const comm::MeshShape& mesh, config::v1::TrainerConfig& trainer);

// Why the model cannot be spread over the mesh (CheckTensorParallel() and CheckSequenceParallel()
// of common/model), with the key that says so.
struct MeshProblem {
  std::string key;
  std::string problem;
};
std::vector<MeshProblem> FindMeshProblems(const comm::MeshShape& mesh,
                                          const model::ModelSpec& spec);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_MESH_FIT_H_
