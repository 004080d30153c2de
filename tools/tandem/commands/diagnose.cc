// tandem diagnose: reports where a run's processes spent their time, and what to change.
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "common/io/atomic_file.h"
#include "common/io/json_text.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/diagnose/report.h"

namespace tandem::commands {
namespace {

struct DiagnoseOptions {
  std::string run_dir;
  std::string trace = "fsdp";
  std::string html;
  std::string doctor;
  bool as_json = false;
};

absl::Status RunDiagnose(const DiagnoseOptions& options) {
  absl::StatusOr<diagnose::Report> report = diagnose::Diagnose(options.run_dir, options.doctor);
  if (absl::IsNotFound(report.status())) return Misuse(report.status());
  RETURN_IF_ERROR(report.status());
  if (!options.html.empty()) {
    RETURN_IF_ERROR(io::WriteFileAtomically(options.html, diagnose::ToHtml(*report)));
  }
  const std::string text =
      options.as_json ? io::JsonText(diagnose::ToJson(*report)) + "\n" : diagnose::ToText(*report);
  std::fputs(text::Printable(text).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddDiagnose(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand(
      "diagnose", "Shows where a run's time went between its processes, and what to change");
  auto options = std::make_shared<DiagnoseOptions>();
  command->add_option("run_dir", options->run_dir, "Folder of the run")->required();
  command->add_option("--trace", options->trace, "What to analyse: fsdp, the communication")
      ->check(CLI::IsMember({"fsdp"}));
  command->add_option("--html", options->html, "Also writes a page with plots to this file");
  command
      ->add_option("--doctor", options->doctor,
                   "Output of tandem doctor --json, to compare links with its probe")
      ->check(CLI::ExistingFile);
  command->add_flag("--json", options->as_json, "Prints one JSON object instead of text");
  command->callback([&runner, options] { runner = [options] { return RunDiagnose(*options); }; });
}

}  // namespace tandem::commands
