#include "tools/tandem/plan/run_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/frozen_parameters.h"
#include "common/model/parallel_fit.h"
#include "common/rank_setup/mesh_shape.h"
#include "common/rank_setup/rank_setup.h"
#include "common/rank_setup/router_checks.h"
#include "common/rank_setup/vision_checks.h"
#include "common/status/status_macros.h"
#include "tools/tandem/plan/auto_plan.h"
#include "tools/tandem/plan/mesh_fit.h"

namespace tandem::plan {

absl::StatusOr<RunPlan> EvaluatePlan(const PlanRequest& request,
                                     const config::v1::RunConfig& config) {
  RunPlan plan;
  plan.config = config;
  plan.spec = request.spec;
  plan.hardware = request.hardware;
  plan.with_rollouts = request.with_rollouts;
  absl::StatusOr<comm::MeshShape> mesh = setup::MeshShapeOf(
      config.trainer(),
      std::min<int>(request.hardware.per_host, static_cast<int>(config.trainer().ranks())));
  if (!mesh.ok()) {
    return absl::InvalidArgumentError(
        WithPlace(request.places, std::string(mesh.status().message())));
  }
  plan.mesh = *mesh;
  for (const MeshProblem& problem : FindMeshProblems(plan.mesh, request.spec)) {
    return absl::InvalidArgumentError(
        WithPlace(request.places, absl::StrCat(problem.key, ": ", problem.problem)));
  }
  if (const absl::Status device = model::CheckTrainerDevice(request.spec, request.hardware.is_gpu);
      !device.ok()) {
    return absl::Status(device.code(), WithPlace(request.places, std::string(device.message())));
  }
  if (request.with_rollouts) {
    const absl::Status device = model::CheckRolloutDevice(request.spec, config.rollout().device());
    if (!device.ok()) {
      return absl::Status(device.code(), WithPlace(request.places, std::string(device.message())));
    }
    const auto ranks =
        std::max<int>(1, static_cast<int>(config.rollout().tensor_model_parallel_size()));
    const absl::Status split =
        model::CheckTensorParallel(request.spec, ranks, model::KvHeadCopies::kAllowed);
    if (!split.ok()) {
      return absl::Status(
          split.code(),
          WithPlace(request.places,
                    absl::StrCat("rollout.tensor_model_parallel_size: ", split.message())));
    }
    if (config.rollout().enable_expert_parallel() && ranks > 1) {
      const absl::Status whole = model::CheckWholeExperts(request.spec, ranks);
      if (!whole.ok()) {
        return absl::Status(whole.code(), WithPlace(request.places, std::string(whole.message())));
      }
    }
  }
  plan.setup = setup::SetupOf(config, request.spec, plan.mesh,
                              {.on_gpu = request.hardware.is_gpu,
                               .publishes = request.with_rollouts,
                               .by_preference = request.by_preference});
  plan.setup.critic_spec = request.critic_spec;
  plan.batch = PlanBatch(config, plan.mesh);
  plan.rank = PredictRankMemory(request.spec, plan.setup, WorkloadOf(config, plan.batch));
  plan.rollout =
      PredictRolloutMemory(config, request.spec, request.hardware, plan.setup.bucket_bytes);
  plan.budget = BudgetOf(config, request.hardware, plan.rollout, request.with_rollouts);
  plan.cost = EstimateStep(request.spec, plan.setup, plan.batch, plan.rank, request.hardware);
  if (!plan.budget.problem.empty()) {
    plan.problem = WithPlace(request.places, plan.budget.problem);
  } else if (plan.rank.peak.total() > plan.budget.rank_bytes) {
    plan.problem = absl::StrCat("a trainer rank needs ", FormatBytes(plan.rank.peak.total()),
                                " for tensors, at its peak in ", plan.rank.peak.place, ", but has ",
                                FormatBytes(plan.budget.rank_bytes));
  } else if (plan.rank.host_bytes * std::min<int64_t>(request.hardware.per_host, plan.mesh.size()) >
             request.hardware.host_memory_bytes) {
    plan.problem = absl::StrCat(
        "trainer.offload: the ranks of a host keep ",
        FormatBytes(plan.rank.host_bytes *
                    std::min<int64_t>(request.hardware.per_host, plan.mesh.size())),
        " in host memory, which has ", FormatBytes(request.hardware.host_memory_bytes));
  }
  return plan;
}

absl::StatusOr<RunPlan> PlanRun(const PlanRequest& request) {
  const auto& frozen = request.config.trainer().frozen_parameters();
  const absl::Status names =
      model::CheckFrozenParameters(request.spec, {frozen.begin(), frozen.end()});
  if (!names.ok()) {
    return absl::InvalidArgumentError(WithPlace(request.places, std::string(names.message())));
  }
  for (const absl::Status& check : {setup::CheckRouters(request.config, request.spec),
                                    setup::CheckVision(request.config, request.spec)}) {
    if (check.ok()) continue;
    return absl::InvalidArgumentError(WithPlace(request.places, std::string(check.message())));
  }
  if (request.config.trainer().mesh() == "auto") return ChoosePlan(request);
  ASSIGN_OR_RETURN(RunPlan plan, EvaluatePlan(request, request.config));
  if (!plan.fits() && plan.budget.problem.empty()) {
    absl::StrAppend(
        &plan.problem,
        "; set trainer.mesh=auto to search for a plan that fits, or use activation_checkpointing, "
        "offload, more ranks or a smaller trainer.max_tokens_per_micro_batch");
  }
  return plan;
}

}  // namespace tandem::plan
