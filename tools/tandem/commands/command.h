// The shared interface of the subcommands of `tandem`: registration and exit status.
//
// A subcommand is a function that adds itself to the parser with a callback that runs it. The
// program exits 0 on success, 1 on failure, 2 on misuse (bad flags, bad configuration), 130 when
// interrupted.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_COMMAND_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_COMMAND_H_

#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace tandem::commands {

// Runs the chosen command and returns its status.
using Runner = std::function<absl::Status()>;

// Marks an error as the user's: the program exits with 2.
absl::Status Misuse(absl::Status status);
bool IsMisuse(const absl::Status& status);

void AddTrain(CLI::App& app, Runner& runner);
void AddSft(CLI::App& app, Runner& runner);
void AddDpo(CLI::App& app, Runner& runner);
void AddReplay(CLI::App& app, Runner& runner);
void AddExport(CLI::App& app, Runner& runner);
void AddEval(CLI::App& app, Runner& runner);
void AddGenerate(CLI::App& app, Runner& runner);
void AddScore(CLI::App& app, Runner& runner);
void AddTokenize(CLI::App& app, Runner& runner);
void AddReward(CLI::App& app, Runner& runner);
void AddStatus(CLI::App& app, Runner& runner);
void AddHealth(CLI::App& app, Runner& runner);
void AddSync(CLI::App& app, Runner& runner);
void AddDiagnose(CLI::App& app, Runner& runner);
void AddDoctor(CLI::App& app, Runner& runner);
void AddGpuCheck(CLI::App& app, Runner& runner);
void AddView(CLI::App& app, Runner& runner);
void AddPause(CLI::App& app, Runner& runner);
void AddResume(CLI::App& app, Runner& runner);
void AddBench(CLI::App& app, Runner& runner);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_COMMAND_H_
