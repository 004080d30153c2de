// Searches for a plan for `trainer.mesh: auto`.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_AUTO_PLAN_H_
#define TANDEM_TOOLS_TANDEM_PLAN_AUTO_PLAN_H_

#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/plan/run_plan.h"

namespace tandem::plan {

// Tries every mesh that the ranks and the model allow, with each mode of checkpointing and the
// largest micro-batch that fits. If nothing fits, also tries sequence parallelism, and then
// offloading. Returns the fastest plan that fits, by step_cost.h; among plans within 2% the one
// with fewer dimensions, then with less recomputation.
absl::StatusOr<RunPlan> ChoosePlan(const PlanRequest& request);

// Evaluates one configuration whose values are all plain (no auto).
absl::StatusOr<RunPlan> EvaluatePlan(const PlanRequest& request,
                                     const config::v1::RunConfig& config);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_AUTO_PLAN_H_
