// tandem: drives training runs and speaks to the services. `tandem --help` lists the subcommands.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/config/nearest.h"
#include "common/host/lock_order_checks.h"
#include "common/rpc/security_flags.h"
#include "common/status/exceptions.h"
#include "common/telemetry/uncaught_exceptions.h"
#include "common/text/flag_help.h"
#include "common/text/printable.h"
#include "common/version/version.h"
#include "tools/tandem/commands/command.h"

namespace {

constexpr int kFailure = 1;
constexpr int kMisuse = 2;
constexpr int kInterrupted = 130;

// The innermost command that the line names: "tandem", "tandem bench".
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : Innermost(*parsed.back());
}

// "; did you mean 'train'?", or what `otherwise` says.
std::string Suggest(const std::string& word, const std::vector<std::string>& names,
                    const std::string& otherwise) {
  const std::string nearest = tandem::config::Nearest(word, names);
  return nearest.empty() ? otherwise : absl::StrCat("; did you mean '", nearest, "'?");
}

std::string UnknownCommand(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* known : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(known->get_name());
  }
  return absl::StrCat(
      "no command '", word, "'",
      Suggest(word, names, absl::StrCat("; the commands are ", absl::StrJoin(names, ", "))));
}

std::string UnknownFlag(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  const std::string flag = word.substr(0, word.find('='));
  return absl::StrCat("no flag '", flag, "'", Suggest(flag, names, ""));
}

// `before` are the arguments before the word, the last of them its neighbour.
std::string UnexpectedWord(const CLI::App& command, const std::string& word,
                           const std::vector<std::string>& before) {
  const bool follows_value = before.size() > 1 &&
                             absl::StartsWith(before[before.size() - 2], "--") &&
                             !absl::StartsWith(before.back(), "-");
  if (!follows_value) return absl::StrCat("unexpected '", word, "'");
  const std::string& flag = before[before.size() - 2];
  const CLI::Option* option = command.get_option_no_throw(flag);
  const bool repeats = option != nullptr && option->get_items_expected_max() > 1;
  const std::string cure =
      repeats ? absl::StrCat("for a second one repeat the flag (", flag, " A ", flag, " B)")
              : absl::StrCat("quote a value that has spaces (", flag, " '", before.back(), " ",
                             word, "')");
  return absl::StrCat("unexpected '", word, "': ", flag, " takes one value; ", cure);
}

// Says what CLI11's message leaves out: the word that it did not expect, and the nearest command or
// flag. "" if there is nothing to add.
std::string ExplainParseError(const CLI::App& app, const CLI::ParseError& error,
                              const std::vector<std::string>& args) {
  const int code = error.get_exit_code();
  if (code != static_cast<int>(CLI::ExitCodes::ExtrasError) &&
      code != static_cast<int>(CLI::ExitCodes::RequiredError)) {
    return "";
  }
  const CLI::App& command = Innermost(app);
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    if (word.empty() || word == "-" || word == "--") continue;
    if (absl::StartsWith(word, "-")) return UnknownFlag(command, word);
    if (command.get_require_subcommand_min() > 0) return UnknownCommand(command, word);
    const auto at = std::find(args.begin(), args.end(), word);
    return UnexpectedWord(command, word, {args.begin(), at});
  }
  return "";
}

int Run(int argc, char** argv) {
  using namespace tandem::commands;  // NOLINT: the Add functions
  CLI::App app("Tandem: reinforcement learning of language models with a trainer and rollouts");
  tandem::text::ShowDefaults(app);
  app.set_version_flag("--version", absl::StrCat("tandem ", tandem::version::BuildVersion()));
  app.require_subcommand(1);
  tandem::rpc::SecurityOptions security;
  tandem::rpc::AddSecurityFlags(app, security);
  app.fallthrough();  // they may stand behind the subcommand too
  Runner runner;
  for (const auto add :
       {AddTrain,  AddSft,      AddDpo,    AddReplay,   AddExport, AddEval, AddGenerate,
        AddScore,  AddTokenize, AddReward, AddStatus,   AddHealth, AddSync, AddPause,
        AddResume, AddDiagnose, AddDoctor, AddGpuCheck, AddView,   AddBench}) {
    add(app, runner);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 0 for --help and --version; CLI11's own codes for bad flags mean nothing to callers.
    if (error.get_exit_code() != 0) {
      if (const std::string why = ExplainParseError(app, error, {argv, argv + argc});
          !why.empty()) {
        absl::FPrintF(stderr, "tandem: %s; see --help\n", tandem::text::Printable(why));
        return kMisuse;
      }
    }
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
  tandem::host::SkipLockOrderChecks();
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    absl::FPrintF(stderr, "tandem: %s\n",
                  tandem::text::Printable(tandem::StatusOf(error).message()));
    return kFailure;
  }
}
