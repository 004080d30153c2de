#include "tools/tandem/commands/dry_run.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "common/io/atomic_file.h"
#include "common/plan/model_shape.h"
#include "common/plan/plan_report.h"
#include "common/plan/run_plan.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"

namespace tandem::commands {
namespace {

absl::Status Print(plan::PlanRequest request, const DryRunOptions& options) {
  request.with_rollouts = !options.supervised;
  absl::StatusOr<plan::RunPlan> plan = plan::PlanRun(request);
  if (!plan.ok()) return Misuse(plan.status());
  if (options.json) {
    std::printf("%s\n", plan::PlanToJson(*plan).dump().c_str());
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

}  // namespace

absl::Status PlanElsewhere(const RunOptions& run, const DryRunOptions& options) {
  plan::PlanRequest request;
  absl::StatusOr<config::v1::RunConfig> config = config::LoadRunConfig(
      run.config_files, run.overrides, &request.places, config::Support::kAnyBuild);
  if (!config.ok()) return Misuse(config.status());
  absl::StatusOr<plan::Hardware> hardware = plan::ParseHardware(options.hardware);
  if (!hardware.ok()) return Misuse(hardware.status());
  absl::StatusOr<model::ModelSpec> spec = plan::FindModelShape(config->model().path());
  if (!spec.ok()) {
    return Misuse(
        absl::Status(spec.status().code(),
                     plan::WithPlace(request.places, std::string(spec.status().message()))));
  }
  request.config = *std::move(config);
  request.spec = *std::move(spec);
  request.hardware = *std::move(hardware);
  request.this_build = false;
  return Print(std::move(request), options);
}

absl::Status PlanHere(const config::v1::RunConfig& config, const config::Places& places,
                      const model::ModelSpec& spec, const DryRunOptions& options) {
  plan::PlanRequest request;
  request.config = config;
  request.places = places;
  request.spec = spec;
  request.hardware = plan::ThisMachine(static_cast<int>(config.trainer().ranks()));
  return Print(std::move(request), options);
}

absl::Status ResolveAutoMesh(const config::Places& places, const model::ModelSpec& spec,
                             bool with_rollouts, config::v1::RunConfig& config) {
  if (config.trainer().mesh() != "auto") return absl::OkStatus();
  plan::PlanRequest request;
  request.config = config;
  request.places = places;
  request.spec = spec;
  request.hardware = plan::ThisMachine(static_cast<int>(config.trainer().ranks()));
  request.with_rollouts = with_rollouts;
  absl::StatusOr<plan::RunPlan> plan = plan::PlanRun(request);
  if (!plan.ok()) return Misuse(plan.status());
  for (const std::string& reason : plan->reasons) {
    absl::FPrintF(stderr, "plan     %s\n", reason);
  }
  if (!plan->fits()) return absl::ResourceExhaustedError(plan->problem);
  config = std::move(plan->config);
  return absl::OkStatus();
}

}  // namespace tandem::commands
