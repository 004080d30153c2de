// tandem: drives training runs and speaks to the services. `tandem --help` lists the subcommands.
#include <cstdio>
#include <exception>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "common/rpc/security_flags.h"
#include "common/status/exceptions.h"
#include "common/telemetry/uncaught_exceptions.h"
#include "common/text/printable.h"
#include "tools/tandem/commands/command.h"

namespace {

constexpr int kFailure = 1;
constexpr int kMisuse = 2;
constexpr int kInterrupted = 130;

int Run(int argc, char** argv) {
  using namespace tandem::commands;  // NOLINT: the Add functions
  CLI::App app("Tandem: reinforcement learning of language models with a trainer and rollouts");
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  app.require_subcommand(1);
  tandem::rpc::SecurityOptions security;
  tandem::rpc::AddSecurityFlags(app, security);
  app.fallthrough();  // they may stand behind the subcommand too
  Runner runner;
  for (const auto add : {AddTrain, AddSft, AddDpo, AddReplay, AddExport, AddEval, AddGenerate,
                         AddScore, AddTokenize, AddReward, AddStatus, AddHealth, AddSync, AddPause,
                         AddResume, AddDiagnose, AddDoctor, AddView, AddBench}) {
    add(app, runner);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 0 for --help and --version; CLI11's own codes for bad flags mean nothing to callers.
    return app.exit(error) == 0 ? 0 : kMisuse;
  }
  const absl::Status applied =
      tandem::rpc::ApplySecurityFlags(security, tandem::security::Role::kDriver);
  const absl::Status status = applied.ok() ? runner() : Misuse(applied);
  if (status.ok()) return 0;
  if (absl::IsCancelled(status)) {
    absl::FPrintF(stderr, "tandem: interrupted\n");
    return kInterrupted;
  }
  absl::FPrintF(stderr, "tandem: %s\n", tandem::text::Printable(status.message()));
  return IsMisuse(status) ? kMisuse : kFailure;
}

}  // namespace

int main(int argc, char** argv) {
  tandem::telemetry::NameUncaughtExceptions("tandem");
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    absl::FPrintF(stderr, "tandem: %s\n",
                  tandem::text::Printable(tandem::StatusOf(error).message()));
    return kFailure;
  }
}
