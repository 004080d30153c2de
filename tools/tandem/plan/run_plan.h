// RunPlan: how a run is spread over its machines, the memory and time it needs there, and why.
//
//   ASSIGN_OR_RETURN(RunPlan plan, PlanRun(request));
//   if (!plan.fits()) return absl::ResourceExhaustedError(plan.problem);
//   Start(plan.config);    // `trainer.mesh: auto` is resolved in it
#ifndef TANDEM_TOOLS_TANDEM_PLAN_RUN_PLAN_H_
#define TANDEM_TOOLS_TANDEM_PLAN_RUN_PLAN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/mesh_shape.h"
#include "common/config/place.h"
#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/plan/batch_plan.h"
#include "tools/tandem/plan/hardware.h"
#include "tools/tandem/plan/memory_budget.h"
#include "tools/tandem/plan/rank_memory.h"
#include "tools/tandem/plan/rollout_memory.h"
#include "tools/tandem/plan/step_cost.h"

namespace tandem::plan {

struct PlanRequest {
  config::v1::RunConfig config;
  config::Places places;  // places that set values; auto may choose the unset ones
  model::ModelSpec spec;
  std::optional<model::ModelSpec> critic_spec;  // of critic.model.path, if set
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
  setup::RankSetup setup;
  BatchPlan batch;
  RankMemory rank;
  RolloutMemory rollout;
  MemoryBudget budget;
  StepCost cost;
  bool with_rollouts = true;
  std::vector<std::string> reasons;  // one sentence each
  std::string problem;               // "PLACE: KEY: ...": why it does not fit; empty if it fits

  bool fits() const { return problem.empty(); }
  // What must fit in budget.rank_bytes: tensors, and on a CPU prepared images beside them.
  int64_t needed_bytes() const {
    return rank.peak.total() + (hardware.is_gpu ? 0 : rank.pixel_bytes);
  }
};

// Evaluates the configuration as given, or searches if trainer.mesh is auto. A run that does not
// fit returns a plan with a problem; an invalid mesh returns INVALID_ARGUMENT with file and line.
absl::StatusOr<RunPlan> PlanRun(const PlanRequest& request);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_RUN_PLAN_H_
