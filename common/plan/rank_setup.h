// RankSetup out of a configuration: what the trainer sets its ranks up with, and what the planner
// counts.
#ifndef TANDEM_COMMON_PLAN_RANK_SETUP_H_
#define TANDEM_COMMON_PLAN_RANK_SETUP_H_

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "common/plan/rank_memory.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

// What the configuration does not say.
struct SetupContext {
  bool on_gpu = false;         // the ranks compute on GPUs
  bool publishes = false;      // rollouts are given weights
  bool by_preference = false;  // OBJECTIVE_PREFERENCE, which always has a reference
};

// `spec` is the policy's. The configuration states every value (config::LoadRunConfig).
RankSetup SetupOf(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                  const comm::MeshShape& mesh, const SetupContext& context);

// Whether a value model is trained beside the policy.
bool HasCritic(const config::v1::RunConfig& config);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_RANK_SETUP_H_
