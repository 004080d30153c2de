// Formats a plan as text and as JSON.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_PLAN_REPORT_H_
#define TANDEM_TOOLS_TANDEM_PLAN_PLAN_REPORT_H_

#include <string>

#include "nlohmann/json_fwd.hpp"
#include "tools/tandem/plan/run_plan.h"

namespace tandem::plan {

// Describes the model, the machines, the mesh and the reasons for it, the batch, and a rank's
// memory by kind with bars.
std::string DescribePlan(const RunPlan& plan);

// {"fits", "problem", "model", "hardware", "mesh", "batch", "rank_memory", "rollout_memory",
//  "step_seconds", "settings", "reasons"}; sizes in bytes.
nlohmann::json PlanToJson(const RunPlan& plan);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_PLAN_REPORT_H_
