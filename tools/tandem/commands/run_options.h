// The options of commands that work on a run: --config, --set, --local, and what they resolve to.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_RUN_OPTIONS_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_RUN_OPTIONS_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "common/config/place.h"
#include "common/config/validation.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::commands {

struct RunOptions {
  std::vector<std::string> config_files;
  std::vector<std::string> overrides;
  bool local = false;
  bool dry_run = false;
  bool quiet = false;                  // shows errors, warnings and the result only
  std::string metrics;                 // HOST:PORT to serve metrics on; empty: none
  std::string openai_listen;           // HOST:PORT; see LocalClusterOptions
  std::vector<int64_t> replica_ranks;  // of each replica; see LocalClusterOptions
  bool trace = false;
  bool resume = false;
  std::string resume_folder;               // of --resume=DIR; empty: the run's newest checkpoint
  bool force = false;                      // starts what checks of memory and cores refuse
  bool take_over = false;                  // takes trainer and rollouts from the run that has them
  std::vector<std::string> allow_changed;  // kinds of inputs, see driver/run_inputs.h
};

void AddRunOptions(CLI::App& command, RunOptions& options);
// Adds --quiet, for commands that show their progress.
void AddQuietOption(CLI::App& command, RunOptions& options);
// Adds --metrics HOST:PORT, --openai-listen HOST:PORT and --trace, for commands that train.
void AddObservationOptions(CLI::App& command, RunOptions& options);
// Adds --replica-ranks, for commands that pass it on to their session.
void AddReplicaRanksOption(CLI::App& command, RunOptions& options);
// Adds --force, for commands that check whether this machine can hold the run.
void AddForceOption(CLI::App& command, RunOptions& options);
// Adds --resume[=DIR], --allow-changed and --take-over, for commands that train.
void AddResumeOption(CLI::App& command, RunOptions& options);

// Returns the validated configuration, with absolute paths of models, reward functions and run_dir,
// and adds the families of model.family_file to this process (AddFamilyFile()). Misuse if it is
// invalid.
absl::StatusOr<config::v1::RunConfig> ResolveConfig(const RunOptions& options,
                                                    const config::FileNeeds& needs,
                                                    config::Places* places = nullptr);

// Adds the families of model.family_file alone, for commands that read a config.json before they
// have a whole configuration.
absl::Status AddFamilies(const std::vector<std::string>& overrides);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_RUN_OPTIONS_H_
