#include "tools/tandem/commands/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "common/host/gpus.h"
#include "common/io/atomic_file.h"
#include "common/io/json_text.h"
#include "common/model/families/family_table.h"
#include "common/rank_setup/rank_setup.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/plan/model_shape.h"
#include "tools/tandem/plan/plan_report.h"
#include "tools/tandem/plan/run_plan.h"

namespace tandem::commands {
namespace {

// Adds the place of the configuration to an error of `spec`.
absl::StatusOr<model::ModelSpec> Placed(absl::StatusOr<model::ModelSpec> spec,
                                        const config::Places& places) {
  if (spec.ok()) return spec;
  return Misuse(absl::Status(spec.status().code(),
                             plan::WithPlace(places, std::string(spec.status().message()))));
}

// What a plan is of beside the configuration and the policy: the kind of run, and a critic that
// begins as another model.
absl::Status AddModels(const DryRunOptions& options, plan::PlanRequest& request) {
  request.with_rollouts = !options.supervised;
  request.by_preference = options.by_preference;
  const std::string& critic = request.config.critic().model().path();
  if (critic.empty() || !setup::HasCritic(request.config)) return absl::OkStatus();
  ASSIGN_OR_RETURN(request.critic_spec, Placed(plan::FindValueModelShape(critic), request.places));
  return absl::OkStatus();
}

absl::StatusOr<plan::PlanRequest> RequestHere(const config::v1::RunConfig& config,
                                              const config::Places& places,
                                              const model::ModelSpec& spec,
                                              const DryRunOptions& options) {
  plan::PlanRequest request;
  request.config = config;
  request.places = places;
  request.spec = spec;
  request.hardware = plan::ThisMachine(static_cast<int>(config.trainer().ranks()));
  RETURN_IF_ERROR(AddModels(options, request));
  return request;
}

absl::Status Print(const plan::PlanRequest& request, const DryRunOptions& options) {
  absl::StatusOr<plan::RunPlan> plan = plan::PlanRun(request);
  if (!plan.ok()) return Misuse(plan.status());
  if (options.json) {
    std::printf("%s\n", io::JsonText(plan::PlanToJson(*plan)).c_str());
  } else {
    std::printf("%s", plan::DescribePlan(*plan).c_str());
  }
  std::fflush(stdout);
  if (!plan->fits()) return absl::ResourceExhaustedError(plan->problem);
  if (!options.output.empty()) {
    RETURN_IF_ERROR(io::WriteFileAtomically(options.output, config::ToYaml(plan->config)));
  }
  return absl::OkStatus();
}

// Prints the device that a process takes if it starts on this machine. The services may run on
// others, so a GPU that is not here is no error of the plan.
void PrintDevice(const char* key, const std::string& setting) {
  const absl::StatusOr<host::DeviceChoice> device =
      host::ChooseDevice(key, setting, /*local_rank=*/0, host::ReadGpuFacts());
  absl::PrintF("device   %s %s here: %s\n", key, setting,
               device.ok() ? device->description : std::string(device.status().message()));
}

bool HasGpu() {
  std::error_code ignored;
  return std::filesystem::exists("/dev/nvidiactl", ignored);
}

}  // namespace

absl::Status PlanElsewhere(const RunOptions& run, const DryRunOptions& options) {
  plan::PlanRequest request;
  absl::StatusOr<config::v1::RunConfig> config = config::LoadRunConfig(
      run.config_files, run.overrides, &request.places, config::Support::kAnyBuild);
  if (!config.ok()) return Misuse(config.status());
  RETURN_IF_ERROR(Misuse(model::AddFamilyFile(config->model().family_file())));
  absl::StatusOr<plan::Hardware> hardware = plan::ParseHardware(options.hardware);
  if (!hardware.ok()) return Misuse(hardware.status());
  ASSIGN_OR_RETURN(request.spec,
                   Placed(plan::FindModelShape(config->model().path()), request.places));
  request.config = *std::move(config);
  request.hardware = *std::move(hardware);
  request.this_build = false;
  RETURN_IF_ERROR(AddModels(options, request));
  return Print(request, options);
}

absl::Status PlanHere(const config::v1::RunConfig& config, const config::Places& places,
                      const model::ModelSpec& spec, const DryRunOptions& options) {
  ASSIGN_OR_RETURN(const plan::PlanRequest request, RequestHere(config, places, spec, options));
  if (!options.json) {
    PrintDevice("trainer.device", config.trainer().device());
    if (!options.supervised) PrintDevice("rollout.device", config.rollout().device());
  }
  return Print(request, options);
}

std::optional<int64_t> PlannedPolicyState(const config::v1::RunConfig& config,
                                          const config::Places& places,
                                          const model::ModelSpec& spec,
                                          const DryRunOptions& options) {
  if (config.trainer().mesh() == "auto") return std::nullopt;
  const absl::StatusOr<plan::PlanRequest> request = RequestHere(config, places, spec, options);
  if (!request.ok()) return std::nullopt;
  const absl::StatusOr<plan::RunPlan> plan = plan::PlanRun(*request);
  return plan.ok() ? std::optional(plan->rank.policy_state) : std::nullopt;
}

absl::Status ResolveAutoMesh(const config::Places& places, const model::ModelSpec& spec,
                             const DryRunOptions& options, bool quiet,
                             config::v1::RunConfig& config) {
  if (config.trainer().mesh() != "auto") return absl::OkStatus();
  ASSIGN_OR_RETURN(const plan::PlanRequest request, RequestHere(config, places, spec, options));
  absl::StatusOr<plan::RunPlan> plan = plan::PlanRun(request);
  if (!plan.ok()) return Misuse(plan.status());
  if (!quiet) {
    for (const std::string& reason : plan->reasons) {
      absl::FPrintF(stderr, "plan     %s\n", reason);
    }
  }
  if (!plan->fits()) return absl::ResourceExhaustedError(plan->problem);
  config = std::move(plan->config);
  return absl::OkStatus();
}

absl::Status CheckPlanFits(const config::v1::RunConfig& config, const config::Places& places,
                           const model::ModelSpec& spec, int64_t longest_prompt,
                           const DryRunOptions& dry_run, const RunOptions& options) {
  const bool states_memory = config.trainer().memory_megabytes() > 0;
  if (!states_memory && (!options.local || HasGpu())) return absl::OkStatus();
  ASSIGN_OR_RETURN(plan::PlanRequest request, RequestHere(config, places, spec, dry_run));
  config::v1::DataConfig& data = *request.config.mutable_data();
  data.set_max_prompt_length(std::min<int64_t>(data.max_prompt_length(), longest_prompt));
  // Rollouts elsewhere take nothing of this machine.
  if (!options.local) request.with_rollouts = false;
  absl::StatusOr<plan::RunPlan> plan = plan::PlanRun(request);
  if (!plan.ok()) return Misuse(plan.status());
  if (plan->fits()) return absl::OkStatus();
  if (options.force) {
    absl::FPrintF(stderr, "warning  %s (started all the same: --force)\n", plan->problem);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(plan->problem, "; --dry-run prints the plan, --force starts all the same"));
}

}  // namespace tandem::commands
