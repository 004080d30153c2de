// Derives RankSetup from a configuration: the trainer sets its ranks up with it, and the planner
// counts with it.
#ifndef TANDEM_COMMON_PLAN_RANK_SETUP_H_
#define TANDEM_COMMON_PLAN_RANK_SETUP_H_

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "common/plan/rank_memory.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

// Facts that the configuration does not contain.
struct SetupContext {
  bool on_gpu = false;         // the ranks compute on GPUs
  bool publishes = false;      // rollouts receive weights
  bool by_preference = false;  // OBJECTIVE_PREFERENCE, which always has a reference
};

// `spec` is the policy's. The configuration must have every value set (config::LoadRunConfig).
RankSetup SetupOf(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                  const comm::MeshShape& mesh, const SetupContext& context);

// Whether a value model is trained alongside the policy.
bool HasCritic(const config::v1::RunConfig& config);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_RANK_SETUP_H_
