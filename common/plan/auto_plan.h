// `trainer.mesh: auto`: the search for a plan.
#ifndef TANDEM_COMMON_PLAN_AUTO_PLAN_H_
#define TANDEM_COMMON_PLAN_AUTO_PLAN_H_

#include "absl/status/statusor.h"
#include "common/plan/run_plan.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

// Tries every mesh that the ranks and the model allow, with each mode of checkpointing and the
// largest micro-batch that fits; where nothing fits also with sequences shared among ranks, and
// then with the state offloaded. Of what fits the fastest by step_cost.h is taken; of equals
// (within 2%) the one with fewer dimensions, then less computed again.
absl::StatusOr<RunPlan> ChoosePlan(const PlanRequest& request);

// One configuration, with every value plain.
absl::StatusOr<RunPlan> EvaluatePlan(const PlanRequest& request,
                                     const config::v1::RunConfig& config);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_AUTO_PLAN_H_
