// Describes a mesh, writes it to a configuration, and checks it against a model.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_MESH_FIT_H_
#define TANDEM_TOOLS_TANDEM_PLAN_MESH_FIT_H_

#include <string>
#include <vector>

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

// "dp_replicate 4 x dp_shard 8"; "1 rank".
std::string DescribeMesh(const comm::MeshShape& mesh);

// Writes the mesh's shape and names, the sequence-parallel size and the matching strategy:
// hybrid_shard if sharded copies are replicated, no_shard if nothing is sharded, full_shard
// otherwise.
void SetMesh(const comm::MeshShape& mesh, config::v1::TrainerConfig& trainer);

// A reason why the model cannot be spread over the mesh (CheckTensorParallel() and
// CheckSequenceParallel() of common/model), with the key at fault.
struct MeshProblem {
  std::string key;
  std::string problem;
};
std::vector<MeshProblem> FindMeshProblems(const comm::MeshShape& mesh,
                                          const model::ModelSpec& spec);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_MESH_FIT_H_
