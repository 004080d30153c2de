// tandem doctor: what is wrong with a configuration, this host and the services, and how to mend
// it.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/config/load.h"
#include "common/plan/hardware.h"
#include "common/plan/run_plan.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/doctor/host_checks.h"
#include "tools/tandem/doctor/model_checks.h"
#include "tools/tandem/doctor/service_checks.h"

namespace tandem::commands {
namespace {

using doctor::Finding;
using doctor::Findings;
using doctor::Severity;

struct Options {
  std::vector<std::string> configs;
  std::vector<std::string> overrides;
  bool as_json = false;
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
      const nlohmann::json line = {{"severity", NameOf(finding.severity)},
                                   {"what", finding.what},
                                   {"found", finding.found},
                                   {"cure", finding.cure}};
      std::printf("%s\n",
                  line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
      continue;
    }
    std::printf("%-8s %s: %s\n", NameOf(finding.severity), finding.what.c_str(),
                finding.found.c_str());
    if (!finding.cure.empty()) std::printf("         -> %s\n", finding.cure.c_str());
  }
}

void CheckPlan(const config::v1::RunConfig& config, const config::Places& places,
               const model::ModelSpec& spec, Findings& findings) {
  plan::PlanRequest request;
  request.config = config;
  request.places = places;
  request.spec = spec;
  request.hardware = plan::ThisMachine(static_cast<int>(config.trainer().ranks()));
  const absl::StatusOr<plan::RunPlan> plan = plan::PlanRun(request);
  if (!plan.ok()) {
    findings.Fail("mesh", std::string(plan.status().message()), "correct the keys that it names");
  } else {
    doctor::CheckMemory(*plan, findings);
  }
}

absl::Status RunDoctor(const Options& options) {
  Findings findings;
  config::Places places;
  const absl::StatusOr<config::v1::RunConfig> config =
      config::LoadRunConfig(options.configs, options.overrides, &places);
  if (!config.ok()) {
    findings.Fail("configuration", std::string(config.status().message()),
                  "correct the lines that it names");
  } else {
    findings.Ok("configuration", "every value is in its range");
    doctor::CheckProcessor(*config, findings);
    doctor::CheckLimits(findings);
    doctor::CheckSharedMemory(*config, findings);
    doctor::CheckAdapters(findings);
    std::optional<model::ModelSpec> spec;
    if (!config->model().path().empty()) spec = doctor::CheckModel(*config, findings);
    if (spec.has_value()) {
      doctor::CheckData(*config, findings);
      doctor::CheckDisk(*config, spec->num_parameters(), findings);
      // Where the services run elsewhere, their memory is not this host's.
      if (config->trainer().endpoint().empty()) CheckPlan(*config, places, *spec, findings);
    }
    doctor::CheckServices(*config, spec, {.version = TANDEM_VERSION}, findings);
  }
  Print(findings, options.as_json);
  const int errors = findings.Count(Severity::kError);
  if (errors == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      errors, errors == 1 ? " thing stands" : " things stand", " in the way of a run"));
}

}  // namespace

void AddDoctor(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand(
      "doctor", "What stands in the way of a run on this host and its services, with cures");
  auto options = std::make_shared<Options>();
  command->add_option("--config", options->configs, "YAML files, later ones win");
  command->add_option("--set", options->overrides, "Overrides a value")->allow_extra_args(false);
  command->add_flag("--json", options->as_json, "One JSON object a finding");
  command->callback([&runner, options] { runner = [options] { return RunDoctor(*options); }; });
}

}  // namespace tandem::commands
