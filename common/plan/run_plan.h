// RunPlan: how a run is spread over its machines, what it will need there, and why.
//
//   ASSIGN_OR_RETURN(RunPlan plan, PlanRun(request));
//   if (!plan.fits()) return absl::ResourceExhaustedError(plan.problem);
//   Start(plan.config);    // in which what `trainer.mesh: auto` left open is decided
#ifndef TANDEM_COMMON_PLAN_RUN_PLAN_H_
#define TANDEM_COMMON_PLAN_RUN_PLAN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/mesh_shape.h"
#include "common/config/place.h"
#include "common/model/model_spec.h"
#include "common/plan/batch_plan.h"
#include "common/plan/hardware.h"
#include "common/plan/memory_budget.h"
#include "common/plan/rank_memory.h"
#include "common/plan/rollout_memory.h"
#include "common/plan/step_cost.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

struct PlanRequest {
  config::v1::RunConfig config;
  config::Places places;  // values that are stated stay; the others are auto's to choose
  model::ModelSpec spec;
  std::optional<model::ModelSpec> critic_spec;  // of critic.model.path, where that is stated
  Hardware hardware;
  bool with_rollouts = true;
  bool by_preference = false;  // `tandem dpo`
  bool this_build = true;      // choose only what this build can run
};

struct RunPlan {
  config::v1::RunConfig config;  // with plain values: no auto
  model::ModelSpec spec;
  Hardware hardware;
  comm::MeshShape mesh;
  RankSetup setup;
  BatchPlan batch;
  RankMemory rank;
  RolloutMemory rollout;
  MemoryBudget budget;
  StepCost cost;
  bool with_rollouts = true;
  std::vector<std::string> reasons;  // one sentence each
  std::string problem;               // "PLACE: KEY: ...": why it does not fit; empty where it does

  bool fits() const { return problem.empty(); }
};

// Evaluates the configuration as it is stated, or searches where trainer.mesh is auto. What does
// not fit is a plan with a problem; INVALID_ARGUMENT, with file and line, a mesh that is none.
absl::StatusOr<RunPlan> PlanRun(const PlanRequest& request);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_RUN_PLAN_H_
