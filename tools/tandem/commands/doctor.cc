// tandem doctor: finds problems of a configuration, this host and the services, with their cures.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/load.h"
#include "common/model/families/family_table.h"
#include "common/text/printable.h"
#include "common/version/version.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/doctor/environment_check.h"
#include "tools/tandem/doctor/fleet_memory.h"
#include "tools/tandem/doctor/fleet_probe.h"
#include "tools/tandem/doctor/fleet_reach.h"
#include "tools/tandem/doctor/host_checks.h"
#include "tools/tandem/doctor/model_checks.h"
#include "tools/tandem/doctor/reward_check.h"
#include "tools/tandem/doctor/service_checks.h"
#include "tools/tandem/plan/hardware.h"
#include "tools/tandem/plan/run_plan.h"

namespace tandem::commands {
namespace {

using doctor::Finding;
using doctor::Findings;
using doctor::Severity;

struct DoctorOptions {
  std::vector<std::string> configs;
  std::vector<std::string> overrides;
  bool as_json = false;
  int64_t probe_megabytes = 64;
};

const char* NameOf(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kWarning:
      return "warning";
    default:
      return "error";
  }
}

void Print(const Findings& findings, bool as_json) {
  for (const Finding& finding : findings.all()) {
    if (as_json) {
      nlohmann::json line = {{"severity", NameOf(finding.severity)},
                             {"what", finding.what},
                             {"found", finding.found},
                             {"cure", finding.cure}};
      if (!finding.measured.is_null()) line["measured"] = finding.measured;
      std::printf("%s\n",
                  line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
      continue;
    }
    std::printf("%-8s %s: %s\n", NameOf(finding.severity), text::Printable(finding.what).c_str(),
                text::Printable(finding.found).c_str());
    if (!finding.cure.empty()) {
      std::printf("         -> %s\n", text::Printable(finding.cure).c_str());
    }
    for (const absl::string_view line : absl::StrSplit(finding.table, '\n', absl::SkipEmpty())) {
      std::printf("         %s\n", text::PrintableLine(line).c_str());
    }
  }
}

absl::StatusOr<plan::RunPlan> MakePlan(const config::v1::RunConfig& config,
                                       const config::Places& places, const model::ModelSpec& spec) {
  plan::PlanRequest request;
  request.config = config;
  request.places = places;
  request.spec = spec;
  request.hardware = plan::ThisMachine(static_cast<int>(config.trainer().ranks()));
  return plan::PlanRun(request);
}

// The services of the fleet, what they reach of each other, and whether they have room for the run.
void CheckFleet(const DoctorOptions& options, const config::v1::RunConfig& config,
                const std::optional<model::ModelSpec>& spec,
                const absl::StatusOr<plan::RunPlan>& plan, Findings& findings) {
  const doctor::ServiceCheckOptions service_options{.version =
                                                        std::string(version::BuildVersion())};
  const std::vector<doctor::FleetService> services =
      doctor::CheckServices(config, spec, service_options, findings);
  if (services.empty()) return;
  const std::vector<doctor::FleetProcess> processes =
      doctor::CheckReach(services, service_options.timeout, findings);
  if (plan.ok()) doctor::CheckFleetMemory(*plan, processes, findings);
  doctor::CheckProbe(services, processes, {.largest_bytes = options.probe_megabytes << 20},
                     findings);
}

absl::Status RunDoctor(const DoctorOptions& options) {
  Findings findings;
  config::Places places;
  const absl::StatusOr<config::v1::RunConfig> config =
      config::LoadRunConfig(options.configs, options.overrides, &places);
  if (!config.ok()) {
    findings.Fail("configuration", std::string(config.status().message()),
                  "correct the named lines");
  } else {
    findings.Ok("configuration", "all values are valid");
    if (const absl::Status added = model::AddFamilyFile(config->model().family_file());
        !added.ok()) {
      findings.Fail("model.family_file", std::string(added.message()), "correct the named lines");
    }
    doctor::CheckProcessor(*config, findings);
    doctor::CheckDevices(*config, findings);
    doctor::CheckLimits(findings);
    doctor::CheckSharedMemory(*config, findings);
    doctor::CheckAdapters(findings);
    std::optional<model::ModelSpec> spec;
    absl::StatusOr<plan::RunPlan> plan = absl::NotFoundError("no model");
    if (!config->model().path().empty()) spec = doctor::CheckModel(*config, findings);
    if (spec.has_value()) {
      doctor::CheckData(*config, findings);
      doctor::CheckDisk(*config, spec->num_parameters(), findings);
      plan = MakePlan(*config, places, *spec);
      if (!plan.ok()) {
        findings.Fail("mesh", std::string(plan.status().message()), "correct the named keys");
      } else if (config->trainer().endpoint().empty()) {
        // With an endpoint the services run elsewhere, so this host's memory does not matter.
        doctor::CheckMemory(*plan, findings);
      }
    }
    doctor::CheckReward(*config, findings);
    doctor::CheckEnvironment(*config, findings);
    CheckFleet(options, *config, spec, plan, findings);
  }
  Print(findings, options.as_json);
  const int errors = findings.Count(Severity::kError);
  if (errors == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(errors, errors == 1 ? " problem blocks" : " problems block", " a run"));
}

}  // namespace

void AddDoctor(CLI::App& app, Runner& runner) {
  CLI::App* command =
      app.add_subcommand("doctor", "Checks this host and the run's services, and suggests cures");
  auto options = std::make_shared<DoctorOptions>();
  command->add_option("--config", options->configs, "YAML files, later ones win");
  command->add_option("--set", options->overrides, "Overrides a configuration value")
      ->allow_extra_args(false);
  command
      ->add_option("--probe-megabytes", options->probe_megabytes,
                   "Largest tensor that the fleet's processes all-reduce, if they are idle; 0 only "
                   "checks that they reach each other")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--json", options->as_json, "Prints one JSON object per finding");
  command->callback([&runner, options] { runner = [options] { return RunDoctor(*options); }; });
}

}  // namespace tandem::commands
