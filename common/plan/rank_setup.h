// RankSetup out of a configuration.
#ifndef TANDEM_COMMON_PLAN_RANK_SETUP_H_
#define TANDEM_COMMON_PLAN_RANK_SETUP_H_

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "common/plan/rank_memory.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

// `publishes`: rollouts are given weights. `on_gpu`: the ranks compute on GPUs.
RankSetup SetupOf(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                  const comm::MeshShape& mesh, bool on_gpu, bool publishes);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_RANK_SETUP_H_
